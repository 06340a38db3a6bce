"""The command line.

`main` is the `flux-trio` command. Each command is one file of its group, which reads the options;
the work (jobspecs, rows, the foreground instance) is in the modules beside it. A command's file is
imported when the command runs, because start-up time is part of the interface.

The groups, each of which imports only those below it (`.importlinter` holds this):

    app             the names of the commands, and the group of each
    lab             fuzz, replay, exercise, simulate: worlds and runs without an instance
    instance        start, demo: the instance in the foreground, and how it ends
    admin           queue, resource, config, module, jobtap, stats, dmesg, token; backup, restore,
                    fsck
    submit          submit, bulksubmit, run: from options to jobspecs
    jobs            jobs, job, cancel, update, top: what becomes of jobs, as rows and as text
    judge           check, view: traces and their judgement, in a file or while an instance runs
    follow          watch, and what attaches to a job: its output, its events, its standard input
    connection      a command's connection to its instance, and what several commands ask there;
                    the HTTP server to which a browser or a collector of metrics connects
    terminal        what users type and read: values, errors, rows; completion, help
"""

from flux_trio.cli.app import main

__all__ = ["main"]
