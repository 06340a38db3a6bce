"""Cores: what each service of an instance decides. Pure: no trio, no files, no clock.

A core is handed what one turn of its service's loop found waiting (messages, timers, results of
slow work) and the time, and returns actions; it calls nothing. `turns` holds the vocabulary that
all cores share.
"""
