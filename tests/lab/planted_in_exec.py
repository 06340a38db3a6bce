"""Mistakes to plant in docs/howto/any-language/exec.py, as `planted_in_python` has them of fifo.py.

Those that are blind were thought of for another execution service, and carried over to this one.
"""

from __future__ import annotations

from typing import Final

from flux_trio.lab.exercise import UNHARMED
from tests.lab.planted import Row

CANCELED: Final = "        if job.statuses:\n            job.say("
FINISHES: Final = (
    "        if job.statuses:\n"
    '            job.say(self.handle, "finish", status=max(job.statuses))\n'
)
RELEASES: Final = "        self.release(job, job.ranks, final=True)\n"
IN_PART: Final = "                self.release(job, {rank}, final=False)\n"
STARTS: Final = '            job.say(self.handle, "start")\n'
ENDS: Final = "                    self.jobs[jobid].ending.set()\n"
GREATEST: Final = "max(job.statuses)"
KNOWN: Final = "        job = self.jobs.get(payload"
SAYS: Final = '{"id": self.id, "type": kind, "data": data}'
NOT_THERE: Final = '            self.fail(job, "exec", f"{command[0]}: {error.strerror}")\n'
KILLS: Final = (
    "        await trio.sleep(KILL_S)\n"
    "        for process in job.processes:\n"
    "            process.kill()\n"
)
READS: Final = (
    '        found = await self.handle.call(topics.KVS_LOOKUP, {"key": job_key(job.id, "R")})\n'
)
EACH_ENDED: Final = "            running[rank] -= 1\n"

ROWS: Final = (
    Row(
        "answers",
        "answers have the id of the job that runs longest",
        'job = Job(payload["id"],',
        'job = Job(next((each.id for each in self.jobs.values() if each.ranks), payload["id"]),',
        "32.start.17",
    ),
    Row(
        "canceled",
        "a canceled job is never released",
        FINISHES,
        "        if job.ending.is_set():\n            return\n" + FINISHES,
        "32.start.36",
    ),
    Row(
        "canceled",
        "the start of a canceled job is answered with an error",
        FINISHES,
        "        if job.ending.is_set() and job.start is not None:\n"
        "            error = respond_error(job.start, Errno.EPERM)\n"
        "            assert error is not None\n"
        "            return self.handle.send(error)\n" + FINISHES,
        "32.impl.5",
    ),
    Row(
        "canceled",
        "an exception has no type, and a word for its severity",
        FINISHES,
        "        if job.ending.is_set():\n"
        '            job.say(self.handle, "exception", severity="fatal", note="killed")\n'
        + FINISHES,
        "32.start.25",
    ),
    Row(
        "release",
        "no release is the final one of a job on several ranks",
        RELEASES,
        "        for rank in sorted(job.ranks):\n"
        "            self.release(job, {rank}, final=len(parse_r(found['value']).ranks) == 1)\n",
        "32.start.21",
    ),
    Row(
        "release",
        "a release in part says that it is final",
        IN_PART,
        IN_PART.replace("False", "True"),
        "32.start.21",
    ),
    Row(
        "release",
        "the final release names one rank only",
        RELEASES,
        RELEASES.replace("job.ranks,", "{min(job.ranks)},"),
        "32.start.21",
    ),
    Row(
        "release",
        "a rank is released twice",
        "        job.ranks = job.ranks - ranks\n",
        "",
        "32.start.20",
    ),
    Row(
        "release",
        "finish comes after the final release",
        FINISHES + RELEASES,
        RELEASES + FINISHES,
        "32.start.37",
    ),
    Row(
        "start",
        "it stays when hello is refused",
        '                raise Leave(f"{topics.EXEC_HELLO}: {error}") from None\n',
        "                pass\n",
        "32.hello.9",
    ),
    Row("start", "start is said twice", STARTS, 2 * STARTS, "32.start.17"),
    Row(
        "start",
        "start is said when the tasks have ended",
        STARTS,
        "            for each in job.processes:\n                await each.wait()\n" + STARTS,
        "32.start.17",
    ),
    Row(
        "status",
        "the status of a killed job is that of Python",
        "    return -returncode if returncode < 0 else returncode << 8\n",
        "    return returncode if returncode < 0 else returncode << 8\n",
        "32.start.32",
    ),
    Row(
        "status",
        "a job that ends by itself has no finish",
        CANCELED,
        CANCELED.replace("job.statuses", "job.statuses and job.ending.is_set()"),
        "32.start.35",
    ),
    Row(
        "reattach",
        "what runs is run again for the next job manager",
        KNOWN,
        "        payload = payload | {\n"
        '            "reattach": payload["reattach"] and payload["id"] not in self.jobs\n'
        "        }\n"
        "        job = None and self.jobs.get(payload",
        "32.start.10",
    ),
    Row(
        "canceled", "only time limits end a job", ENDS, "                    pass\n", "32.start.36"
    ),
    Row(
        "reattach",
        "what an earlier life has started is started again",
        '        if payload["reattach"]:  #',
        '        if payload["reattach"] and False:  #',
        "32.start.10",
        False,
    ),
    Row(
        "reattach",
        "the next job manager is not said hello to",
        "                self.nursery.start_soon(self.hello)\n",
        "                pass\n",
        "32.hello.1",
        False,
    ),
    Row(
        "reattach",
        "a job that is lost fails without a final release",
        "        self.nursery.start_soon(self.run, job)\n",
        '        if not payload["reattach"]:\n            self.nursery.start_soon(self.run, job)\n',
        "32.start.36",
        False,
    ),
    Row(
        "status",
        "the status is the exit code",
        "returncode << 8",
        "returncode",
        "32.start.32",
        False,
    ),
    Row(
        "status",
        "the status is that of the last task",
        GREATEST,
        "job.statuses[-1]",
        "32.start.32",
        False,
    ),
    Row(
        "status",
        "the status is that of the first task",
        GREATEST,
        "job.statuses[0]",
        "32.start.32",
        False,
    ),
    Row(
        "status",
        "a job is finished with the first of its tasks",
        EACH_ENDED,
        EACH_ENDED + "            tasks.cancel_scope.cancel()\n",
        "32.start.32",
        False,
    ),
    Row(
        "canceled",
        "a canceled job is released, and its processes run on",
        ENDS,
        "                    self.release(self.jobs[jobid], self.jobs[jobid].ranks, final=True)\n"
        "                    self.jobs.pop(jobid).start = None\n",
        "32.start.20",
        False,
    ),
    Row(
        "limit",
        "a job may run on after its time limit",
        "        if job.spec.duration:\n",
        "        if False:\n",
        "32.start.36",
        False,
    ),
    Row(
        "problem",
        "a command that is not there is a job that ends well",
        '            self.fail(job, "exec", f"{command[0]}: {error.strerror}")\n',
        "            job.statuses.append(0)\n" + STARTS,
        "32.criteria.3",
        False,
    ),
    Row(
        "problem",
        "nobody is told of a command that is not there",
        '            self.fail(job, "exec", f"{command[0]}: {error.strerror}")\n',
        "            print(error)\n",
        "32.start.35",
        False,
    ),
    Row(
        "answers",
        "the data of start is left out",
        SAYS,
        SAYS.replace(', "data": data}', '} | ({"data": data} if data else {})'),
        "32.start.15",
        False,
    ),
    Row(
        "answers",
        "ids are texts",
        SAYS,
        SAYS.replace("self.id", "str(self.id)"),
        "32.start.13",
        False,
    ),
    Row(
        "answers",
        "the final release comes after a minute",
        RELEASES,
        "        await trio.sleep(60)\n" + RELEASES,
        "32.start.36",
        False,
    ),
    Row(
        "bystanders",
        "a fatal exception of one job ends all",
        ENDS,
        "                    [each.ending.set() for each in self.jobs.values()]\n",
        UNHARMED,
    ),
    Row(
        "bystanders",
        "a job that fails ends the others",
        CANCELED,
        "        if job.statuses and max(job.statuses):\n"
        "            for other in self.jobs.values():\n"
        "                other.ending.set()\n" + CANCELED,
        UNHARMED,
        False,
    ),
    Row(
        "bystanders",
        "a command that is not there ends the other jobs",
        NOT_THERE,
        NOT_THERE
        + "            for other in self.jobs.values():\n"
        + "                other.ending.set()\n",
        UNHARMED,
        False,
    ),
    Row(
        "bystanders",
        "an exception that is not fatal ends the job",
        "if jobid in self.jobs and severity == FATAL:",
        "if jobid in self.jobs:",
        UNHARMED,
    ),
    Row(
        "bystanders",
        "an exception of severity 1 ends the job",
        "if jobid in self.jobs and severity == FATAL:",
        "if jobid in self.jobs and severity < 2:",
        UNHARMED,
        False,
    ),
    Row(
        "limit",
        "the time limit is in milliseconds",
        "trio.sleep(job.spec.duration)",
        "trio.sleep(job.spec.duration / 1000)",
        UNHARMED,
    ),
    Row(
        "limit",
        "the time limit is in whole seconds",
        "trio.sleep(job.spec.duration)",
        "trio.sleep(int(job.spec.duration))",
        UNHARMED,
        False,
    ),
    Row(
        "limit",
        "a job that is ended by the time limit has no exception",
        '            self.fail(job, "timeout", "the job has exceeded its time limit")\n',
        "            job.ending.set()\n",
        "32.criteria.3",
    ),
    Row("canceled", "SIGKILL is never sent", KILLS, "", "32.start.36"),
    Row(
        "canceled",
        "SIGKILL is sent to the first task alone",
        "        for process in job.processes:\n            process.kill()\n",
        "        job.processes[0].kill()\n",
        "32.start.36",
        False,
    ),
    Row(
        "given",
        "the environment of the jobspec is not given",
        "        for key, value in self.spec.environment.items():\n"
        "            given.pop(key, None)\n"
        "            if value is not None:\n"
        "                given[key] = value\n",
        "",
        "14.attributes.4",
    ),
    Row(
        "given",
        "the first variables alone are given",
        "in self.spec.environment.items():",
        "in list(self.spec.environment.items())[:2]:",
        "14.attributes.4",
        False,
    ),
    Row(
        "given",
        "a variable that is null stays",
        "            given.pop(key, None)\n",
        "",
        "14.attributes.4",
        False,
    ),
    Row("given", "the directory is not entered", "cwd=job.spec.cwd", "cwd=None", "14.submit.4"),
    Row(
        "given",
        "empty arguments are left out",
        "list(command), env",
        "[word for word in command if word], env",
        "14.submit.4",
        False,
    ),
    Row(
        "given",
        "there is a task too few",
        "range(self.spec.ntasks)",
        "range(max(1, self.spec.ntasks - 1))",
        "14.submit.4",
        False,
    ),
    Row(
        "release",
        "a node is released with the first of its tasks",
        "            if not running[rank] and job.ranks != {rank}:\n",
        "            if rank in job.ranks and job.ranks != {rank}:\n",
        "32.start.20",
        False,
    ),
    Row(
        "reattach",
        "what has ended without a job manager is not told",
        'if answer["type"] != "start" or not payload["reattach"]:',
        "if False:",
        "32.start.36",
        False,
    ),
    Row(
        "reattach",
        "jobs are ended when the job manager goes",
        "                    job.start = None\n            case",
        "                    job.start = None\n"
        "                    job.ending.set()\n"
        "            case",
        "32.start.32",
        False,
    ),
    Row(
        "status",
        "the status is that of the task in the middle",
        GREATEST,
        "job.statuses[len(job.statuses) // 2]",
        "32.start.32",
        False,
    ),
    Row(
        "refused",
        "a job whose R cannot be read is never answered",
        READS,
        "        try:\n    " + READS + "        except FluxError:\n            return\n",
        "32.start.36",
        False,
    ),
    Row(
        "answers",
        "ids are doubles",
        'job = Job(payload["id"],',
        'job = Job(int(float(payload["id"])),',
        "32.start.37",
        False,
    ),
)
