"""Services: the components of an instance, each a pure `core` and a thin Trio `service`.

A core holds the whole state of its service. It is handed what one turn of the loop found waiting
(messages, timers, results of slow work) and the time, and returns actions; it calls nothing.
The service performs the actions. `turns` holds the vocabulary all cores share, `runner` the one
loop that runs them.
"""
