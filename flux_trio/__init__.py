"""Flux's job manager, scheduler, execution and resource protocols, made executable on Trio.

The rooms of the package, in groups. A room imports only the rooms below it (`.importlinter`
holds this, and lists the rooms that may not import trio, a clock, randomness or I/O: they are
marked `pure`). So nothing that runs an instance knows the judge, the simulator or the fault worlds.

The command, and what holds up the rest:

    cli             the command `flux-trio`
    testing         helpers for users' tests: instances, plugin harness, watched blocks
    lab             worlds that fall apart from one seed; exercises for programs of others
    sim             simulated runs of a workload, repeatable from a seed
    attach          programs that join a live flux-core: monitor, scheduler, execution service
    views           traces, judgements and tables as text and pictures
    judge           pure: the RFCs' clauses as rules over a trace; reads trace, messages, formats

What runs:

    embedding       an instance inside another program, under Trio or asyncio
    instance        one instance: broker, services, store, clock, addresses
    services        the Trio shells of the cores, and the same modules without Trio (`at_once`)
    store           the stores of the kvs, the files of an instance, and copies of them
    broker          routing of messages, the supervisor of modules
    client          the connection of a command to an instance
    transports      how messages travel: in memory, and by WebSocket
    jobtap          the plugin API and the host of plugins

What decides:

    cores           pure: the state and the decisions of each service
    policies        pure: scheduling policies
    protocols       pure: the state tables of the protocols
    config          pure: the configuration and its checks

What is written:

    editions        pure: the payloads of each edition of the RFCs
    trace           pure: records of messages and events, written and read
    messages        pure: requests, responses, events, topics, error numbers
    formats         pure: R, jobspec, idset, hostlist, eventlog and other texts

What needs nothing of all this:

    shell           the shell host: the program that runs the processes of jobs
    process         lines that never delay a process, private files, operator's commands
    clock           the wall clock and the monotonic clock of an instance, and waits by them
"""

from flux_trio._version import __version__

__all__ = ["__version__"]
