"""Two examples of each command, for its help, its man page and its page in the docs."""

from __future__ import annotations

from typing import Final

import click

EXAMPLES: Final[dict[str, dict[str, str]]] = {
    "start": {
        "-s 4": "open a shell in an instance that takes this machine for four nodes",
        "-s 2 --trace trace.jsonl flux-trio run hostname": "record all messages of a command",
    },
    "shell": {
        "-s 4": "a shell in which `flux jobs` and others reach an instance of 4 nodes",
        "-s 4 -c site.toml": "the same, with a configuration",
    },
    "demo": {"": "show an instance at work", "> demo.txt": "write what would be seen into a file"},
    "submit": {
        "-N 2 -n 4 ./simulate": "four tasks on two nodes",
        "--dependency=afterok:f2Z4 -t 30m ./analyse": "begin after another job has succeeded",
    },
    "bulksubmit": {
        "-n 2 ./render {} ::: frames/*.png": "a job for each file",
        "--progress --watch sleep ::: 1 2 3": "show the output of the jobs until they have ended",
    },
    "run": {
        "-n 4 hostname": "run four tasks and show their output",
        "-l -N 2 --output=out.txt ./solver": "label each line with its task, in a file",
    },
    "cancel": {
        "f2Z4 f2Z5": "cancel two jobs",
        "--all --states=pending": "cancel all of your jobs that wait",
    },
    "update": {
        "f2Z4 duration=2h": "give a job another time limit",
        "f2Z4 duration=+30m": "give a job half an hour more",
    },
    "jobs": {
        "-a -c 20": "list the last 20 jobs, those that ended too",
        "-A -f failed --since=-1h -o '{id} {username} {returncode}'": "failed jobs of all users",
    },
    "attach monitor": {
        "": "judge the instance that FLUX_URI names until ctrl-C",
        "--to local:///run/flux/local --audit --json verdicts.json": "compare who holds what, too",
    },
    "job attach": {
        "f2Z4": "show a job's output until it ends, and pass on what is typed",
        "--show-events f2Z4": "show the events, too",
    },
    "job eventlog": {
        "f2Z4": "print what happened to a job",
        "--follow --human f2Z4": "print what happens as it does, with times for people",
    },
    "job explain": {
        "f2Z4": "say why a job waits, or how it ended",
        "f2Z4 f2Z5": "the same of two jobs",
    },
    "job id": {
        "--to dec f2Z4": "convert an id to a number",
        "--to words 1234567": "convert a number to words",
    },
    "job info": {
        "f2Z4 R": "print the resources of a job",
        "--base f2Z4 jobspec": "print the jobspec without later updates",
    },
    "job kill": {
        "f2Z4": "send SIGTERM to a job",
        "-s USR1 f2Z4 f2Z5": "send another signal to two jobs",
    },
    "job killall": {
        "": "say how many of your running jobs would get SIGTERM",
        "-f -s USR1": "send USR1 to all of them",
    },
    "job last": {
        "": "print the id of the job that you submitted last",
        "3": "print the ids of the last three",
    },
    "job memo": {
        "f2Z4 step=3": "note something about a job for all who list it",
        "f2Z4 step=null": "take the note away",
    },
    "job purge": {
        "--age-limit=1d": "say how many jobs that ended a day ago would be removed",
        "--num-limit=1000 --force": "remove all that ended but the last thousand",
    },
    "job raise": {
        "f2Z4": "cancel a job",
        "-s 1 -t note f2Z4 look at the disk": "log an exception that does not end it",
    },
    "job raiseall": {
        "cancel": "say how many of your active jobs would be canceled",
        "-f -S run cancel maintenance begins": "cancel those that run, with a note",
    },
    "job stats": {
        "": "print the counts of jobs by state",
        "| jq .job_states.run": "print one of them",
    },
    "job status": {
        "f2Z4": "wait for a job, and exit as it did",
        "-v f2Z4 f2Z5": "wait for two, and say how each ended",
    },
    "job taskmap": {
        "f2Z4": "print which task runs on which node",
        "--nodeid=3 f2Z4": "print the node of task 3",
    },
    "job timeleft": {
        "f2Z4": "print how many seconds a job has left",
        "-H": "within a job, print how long it has left",
    },
    "job urgency": {
        "f2Z4 hold": "keep a job from being started",
        "f2Z4 expedite": "let it start before the others",
    },
    "job wait": {
        "f2Z4": "wait for a job that was submitted with --flags=waitable",
        "--all -v": "wait for all of them, and say how each ended",
    },
    "job wait-event": {
        "f2Z4 start": "wait until a job starts",
        "-t 1m -p guest.exec.eventlog f2Z4 shell.start": "wait a minute at most for its shell",
    },
    "watch": {
        "f2Z4 f2Z5": "show the output of two jobs",
        "--active --progress": "show that of all of your active jobs",
    },
    "top": {"": "show the activity of the instance", "-q batch": "show that of a queue"},
    "queue disable": {
        "batch -m 'no more jobs today'": "let a queue refuse jobs, and say why",
        "--all": "let all queues refuse jobs",
    },
    "queue drain": {
        "batch": "wait until a queue is empty",
        "-t 1h": "wait an hour at most until all are",
    },
    "queue enable": {
        "batch": "let a queue accept jobs",
        "--all --quiet": "let all queues accept jobs",
    },
    "queue idle": {
        "batch": "wait until no job of a queue runs",
        "-t 10m --quiet": "wait ten minutes at most until no job runs",
    },
    "queue list": {
        "": "list the queues",
        "-o '{queue} {limits.timelimit!F}'": "print the time limit of each",
    },
    "queue start": {
        "batch": "let the jobs of a queue start",
        "--all": "let the jobs of all queues start",
    },
    "queue status": {
        "": "say whether each queue accepts and starts jobs",
        "batch -v": "with the counts of one",
    },
    "queue stop": {
        "batch -m maintenance": "let no job of a queue start, and say why",
        "--all --nocheckpoint": "let no job start until the instance restarts",
    },
    "config get": {
        "": "print the configuration",
        "--type=fsd job-manager.inactive-age-limit": "print one value of it",
    },
    "config load": {
        "flux.toml": "replace the configuration by that in a file",
        "< flux.toml": "by standard input",
    },
    "config reload": {
        "": "read the files of --config-path again",
        "&& flux-trio config get queues": "and print what came of it",
    },
    "resource R": {
        "-s free": "print the free resources as R",
        "-q batch -s down,drain": "print those of a queue on which no job can start",
    },
    "resource down": {
        "2 no answer": "take node 2 for offline",
        "flux[0-1]": "take two nodes for offline, by their names",
    },
    "resource drain": {
        "": "list the drained nodes",
        "flux3 disk is full": "drain a node: its jobs go on, others do not start there",
    },
    "resource info": {"": "count the resources", "-s free": "count those that are free"},
    "resource list": {
        "": "list the resources by state",
        "-s allocated -o '{nodelist} {ncores}'": "where jobs run",
    },
    "resource status": {
        "": "list the nodes by state",
        "-s drain -n": "list the drained ones, without a header",
    },
    "resource undrain": {
        "flux3": "let jobs start on a node again",
        "--force 0-3 repaired": "on four nodes, though some are not drained",
    },
    "resource up": {"2": "take node 2 for online", "flux[0-1]": "take two nodes for online"},
    "jobtap list": {"": "list the plugins that are loaded", "-a": "with the builtin ones"},
    "jobtap load": {
        "./mine.py limit=5": "load a plugin of your own with a setting",
        "--remove=mine ./mine.py": "load it again",
    },
    "jobtap new": {
        "mine": "write the beginning of a plugin and of its test",
        "-d plugins mine": "write them into another directory",
    },
    "jobtap query": {
        "mine.py": "print what a plugin says of itself",
        ".history | jq .path": "print a part of it",
    },
    "jobtap remove": {"mine": "remove a plugin", "all": "remove all but the builtin ones"},
    "module kill": {
        "sched": "end the scheduler without its farewell, as a crash would",
        "job-exec": "do so to the execution service",
    },
    "module list": {"": "list the modules", "| grep sched": "show one of them"},
    "module load": {
        "sched": "start the scheduler again after `module remove`",
        "--exec sched": "start it in a process of its own",
    },
    "module reload": {
        "sched": "begin the scheduler anew while jobs run",
        "-f job-exec": "start the execution service, whether it is there or not",
    },
    "module remove": {
        "sched": "end the scheduler in order",
        "-f sched": "do not mind if it is not there",
    },
    "module stats": {
        "job-manager": "print a module's statistics",
        "-p active_jobs job-manager": "print one of them",
    },
    "module trace": {
        "sched job-manager": "show the messages of two modules as they pass",
        "--full -t 'sched.*'": "show those of a topic, with payloads",
    },
    "attach exec": {
        "": "run the jobs of the flux-core in whose shell this is typed",
        "--directory /var/tmp/jobs": "and keep their processes and output there",
    },
    "attach sched": {
        "--policy easy": "schedule the jobs of the flux-core in whose shell this is typed",
        "--to local:///run/flux/local --policy fifo": "those of the flux-core of this system",
    },
    "dmesg": {
        "-H": "print the log, with times for people",
        "--follow --new": "print what comes from now on",
    },
    "stats": {
        "": "print the statistics of all modules",
        "--serve 9100": "serve them to Prometheus",
    },
    "token": {
        "--user nobody": "let another user in",
        "--revoke --user nobody": "let them in no more",
    },
    "completion": {
        "bash >> ~/.bashrc": "let bash complete from now on",
        "zsh >> ~/.zshrc": "let zsh do so",
    },
    "help": {
        "submit": "show the man page of a command",
        "queue list": "show that of a command of a group",
    },
    "simulate": {
        "lassen-busy.csv --nodes 128 --cores 40 --policy fifo,easy": "compare two policies",
        "jobs.swf --nodes 64 --cores 16 --plugin none,mine.py --users 5 --report out.html": (
            "a page on what a plugin changes"
        ),
    },
    "check": {
        "trace.jsonl": "say which clauses of the RFCs were kept, and which were not",
        "--edition=current -": "judge what `flux module trace --full` writes into a pipe",
    },
    "view": {
        "trace.jsonl": "draw a trace as a page for a browser",
        "--live": "draw the running instance, as it goes on",
    },
    "exercise exec": {
        "./my-exec": "drive an execution service of yours",
        "--deadline=5 python3 exec.py": "and wait five seconds at most for each answer",
    },
    "exercise manager": {
        "./my-manager": "drive a job manager of yours",
        "--deadline=10 --flux-core": "that of flux-core",
    },
    "exercise sched": {
        "./my-scheduler": "drive a scheduler of yours",
        "--limited=1 python3 sched.py": "one that asks for one job at a time",
    },
    "fuzz": {
        "--seeds 0:100": "play a hundred worlds with faults",
        "--plugin mine.py --time-budget 60": "play them with a plugin, for a minute",
    },
    "replay": {
        "17": "play the world of a seed",
        "--story plan.json": "tell what happens in a world that went wrong",
    },
    "housekeeping list": {
        "": "which jobs' nodes are not free yet, and where the command runs",
        "| grep ƒ2": "that of one job",
    },
    "housekeeping kill": {
        "--all": "end the command everywhere, so that the nodes become free",
        "-s KILL -t 3": "kill it on one node",
    },
    "fsck": {
        "--statedir flux": "check the files of an instance",
        "--statedir flux --repair": "and mend what can be mended",
    },
    "backup": {
        "../copy": "copy the state directory while the instance runs",
        "--statedir flux ../copy": "copy that of an instance that does not",
    },
    "restore": {
        "copy flux": "make a state directory from a backup",
        "../copy ./again && flux-trio start --statedir ./again": "and begin where it was made",
    },
}
"""The words after the command, and what they do, by the command's words after `flux-trio`."""


def examples(context: click.Context) -> dict[str, str]:
    """Return the examples of the command of `context`: whole lines, and what each does."""
    program, _, words = context.command_path.partition(" ")
    return {
        f"{program} {words} {rest}".rstrip(): what for rest, what in EXAMPLES.get(words, {}).items()
    }


class Command(click.Command):
    """A command whose help ends with its examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each above what it does."""
        if found := examples(ctx):
            with formatter.section("Examples"):
                for line, what in found.items():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                    with formatter.indentation():
                        formatter.write_text(what)


class Group(click.Group):
    """A group whose commands are `Command`s, and which lists their summaries whole."""

    command_class = Command
    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under a heading for each kind of reader."""
        for heading, names in self.headings(ctx).items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(limit=200))
                        for name, command in found
                        if command
                    ]
                )

    def headings(self, ctx: click.Context) -> dict[str, list[str]]:
        """Return the names of the commands, by heading."""
        return {"Commands": self.list_commands(ctx)}
