"""Flux's job manager, scheduler, execution and resource protocols, made executable on Trio.

The rooms of the package. A room imports only the rooms below it (`.importlinter` holds this, and
lists the rooms that may not import trio, a clock, randomness or I/O: they are marked `pure`).

    cli             the command `flux-trio`
    testing         helpers for users' tests: instances, plugin harness, watched blocks
    faults          worlds of cores, or of the whole stack, that fall apart from one seed
    exercise        drives a scheduler or execution service of others, and judges it
    sim             simulated runs of a workload, repeatable from a seed
    instance        one instance: broker, services, store, clock, addresses
    backup          copies of a state directory: made while its instance runs, and restored
    state_directory the files of an instance: state, tokens, addresses
    module_process  a module in its own process
    services        the Trio shells of the cores: they receive, call the core, act
    at_once         the modules of an instance without Trio: store and plugins answer in the turn
    store           the stores of the kvs: SQLite and memory
    broker          routing of messages, the supervisor of modules
    client          the connection of a command to an instance
    transports      how messages travel: in memory, and by WebSocket
    jobtap          the plugin API and the host of plugins
    cores           pure: the state and the decisions of each service
    shell           the shell host: the program that runs the processes of jobs
    local_process   commands of the operator: prologs, epilogs, checks of nodes
    durations       waits that include the sleep of the machine
    console         lines on standard output and standard error that never delay the process
    views           traces, judgements and tables as text and pictures
    judge           pure: the RFCs' clauses as rules, and the monitor that asks them
    trace           pure: records of messages and events, written and read
    policies        pure: scheduling policies
    protocols       pure: the state tables of the protocols
    config          pure: the configuration and its checks
    editions        pure: the payloads of each edition of the RFCs
    messages        pure: requests, responses, events, topics, error numbers
    formats         pure: R, jobspec, idset, hostlist, eventlog and other texts
    clock           the wall clock and the monotonic clock of an instance
    collector       how often the garbage collector works
"""

from flux_trio._version import __version__

__all__ = ["__version__"]
