"""Mistakes to plant in docs/howto/any-language/manager.py, as others in fifo.py.

Whoever thought of them has written the acts: none is blind.
"""

from __future__ import annotations

from typing import Final

from flux_trio.lab.exercise import UNHARMED
from tests.lab.planted import Row

ROWS: Final = (
    Row(
        "alloc",
        "a job is asked for twice",
        (
            "            self.unsent.append(request(topics.SCHED_ALLOC, id=job.id, jo"
            "bspec=spec, **about))\n"
        ),
        (
            "            self.unsent.append(request(topics.SCHED_ALLOC, id=job.id, jo"
            "bspec=spec, **about))\n"
            "            self.unsent.append(request(topics.SCHED_ALLOC, id=job.id, jo"
            "bspec=spec, **about))\n"
        ),
        "27.impl.8",
        is_blind=False,
    ),
    Row(
        "alloc",
        "requests have a matchtag",
        (
            "            self.unsent.append(request(topics.SCHED_ALLOC, id=job.id, jo"
            "bspec=spec, **about))\n"
        ),
        (
            '            self.unsent.append(Request(topics.SCHED_ALLOC, {"id": job.id'
            ', "jobspec": spec, **about}, matchtag=7))\n'
        ),
        "27.impl.1",
        is_blind=False,
    ),
    Row(
        "alloc",
        "the jobspec is a text",
        ("spec = without_environment(job.spec)\n            about"),
        ("spec: Any = json.dumps(without_environment(job.spec))\n            about"),
        "27.alloc.5",
        is_blind=False,
    ),
    Row(
        "alloc",
        "the priority is the urgency",
        (
            '{"priority": job.priority, "userid": job.userid, "t_submit": job.t_submi'
            "t}\n"
            "            self"
        ),
        (
            '{"priority": job.urgency, "userid": job.userid, "t_submit": job.t_submit'
            "}\n"
            "            self"
        ),
        "27.alloc.3",
        is_blind=False,
    ),
    Row(
        "alloc",
        "the user is the owner",
        'about: Any = {"priority": job.priority, "userid": job.userid',
        'about: Any = {"priority": job.priority, "userid": self.handle.userid',
        "27.alloc.4",
        is_blind=False,
    ),
    Row(
        "alloc",
        "the job id goes through a double",
        "request(topics.SCHED_ALLOC, id=job.id,",
        "request(topics.SCHED_ALLOC, id=int(float(job.id)),",
        "27.impl.8",
        is_blind=False,
    ),
    Row(
        "alloc",
        "jobs are asked for in the order of their ids",
        "        return -self.priority, self.t_submit, self.id\n",
        "        return 0, 0.0, self.id\n",
        "27.criteria.5",
        is_blind=False,
    ),
    Row(
        "alloc",
        "of equal jobs the last one comes first",
        "        return -self.priority, self.t_submit, self.id\n",
        "        return -self.priority, -self.t_submit, -self.id\n",
        "27.criteria.5",
        is_blind=False,
    ),
    Row(
        "alloc",
        "a held job is asked for",
        "if job.state == SCHED and job.priority]",
        "if job.state == SCHED]",
        "invariant.held-job-waits",
        is_blind=False,
    ),
    Row(
        "alloc",
        "a job is asked for before it has a priority",
        "if job.state == SCHED and job.priority]",
        "if job.state in (DEPEND, PRIORITY, SCHED)]",
        "invariant.held-job-waits",
        is_blind=False,
    ),
    Row(
        "limit",
        "the limit is not heeded",
        (
            "            if self.limit is not None and noutstanding >= self.limit:\n"
            "                break\n"
        ),
        "",
        "27.ready.7",
        is_blind=False,
    ),
    Row(
        "limit",
        "one too many is asked for",
        "noutstanding >= self.limit",
        "noutstanding > self.limit",
        "27.ready.7",
        is_blind=False,
    ),
    Row(
        "limit",
        "an annotation makes room",
        ("        if kind != ANNOTATE:\n            job.asked"),
        (
            "        if kind == ANNOTATE:\n"
            "            job.asked = False\n"
            "        else:\n"
            "            job.asked"
        ),
        "27.impl.8",
        is_blind=False,
    ),
    Row(
        "limit",
        "the limit is of what is sent at once",
        "noutstanding = sum(job.asked for job in self.jobs.values())",
        "noutstanding = 0",
        "27.ready.7",
        is_blind=False,
    ),
    Row(
        "cancel",
        "a request is never canceled",
        "            self.unsent.append(request(topics.SCHED_CANCEL, id=job.id))\n",
        "            pass\n",
        "27.exceptions.2",
        is_blind=False,
    ),
    Row(
        "cancel",
        "a cancel is about the newest job",
        "            self.unsent.append(request(topics.SCHED_CANCEL, id=job.id))\n",
        ("            self.unsent.append(request(topics.SCHED_CANCEL, id=max(self.jobs)))\n"),
        "27.exceptions.2",
        is_blind=False,
    ),
    Row(
        "cancel",
        "a late grant is kept",
        ("        elif kind == SUCCESS:\n            job.granted = True\n"),
        "",
        "27.cancel.7",
        is_blind=False,
    ),
    Row(
        "cancel",
        "a job that is held is not canceled",
        "            self.cancel(job)  # it is held\n",
        "            pass\n",
        "27.alloccancel.4",
        is_blind=False,
    ),
    Row(
        "cancel",
        "a job is clean before its request is answered",
        ("        if job.asked or job.freeing:\n            return\n"),
        ("        if job.freeing:\n            return\n"),
        "27.exceptions.2",
        is_blind=False,
    ),
    Row(
        "prioritize",
        "new priorities are not told",
        (
            "            self.unsent.append(request(topics.SCHED_PRIORITIZE, jobs=[[j"
            "ob.id, job.priority]]))\n"
        ),
        "            pass\n",
        "27.prioritize.1",
        is_blind=False,
    ),
    Row(
        "prioritize",
        "the pair is the wrong way round",
        "jobs=[[job.id, job.priority]]",
        "jobs=[[job.priority, job.id]]",
        "27.prioritize.5",
        is_blind=False,
    ),
    Row(
        "prioritize",
        "the pair is an object",
        "jobs=[[job.id, job.priority]]",
        'jobs=[{"id": job.id, "priority": job.priority}]',
        "27.prioritize.3",
        is_blind=False,
    ),
    Row(
        "prioritize",
        "the priority of before is told",
        "jobs=[[job.id, job.priority]]",
        "jobs=[[job.id, before]]",
        "27.prioritize.5",
        is_blind=False,
    ),
    Row(
        "prioritize",
        "priorities have 16 bits",
        "HIGHEST = 2**32 - 1",
        "HIGHEST = 2**32",
        "21.events.18",
        is_blind=False,
    ),
    Row(
        "hello",
        "hello tells of all active jobs",
        ("            if job.allocated:\n                held"),
        ("            if True:\n                held"),
        "27.hello.5",
        is_blind=False,
    ),
    Row(
        "hello",
        "hello tells of running jobs alone",
        ("            if job.allocated:\n                held: dict"),
        ("            if job.state == RUN:\n                held: dict"),
        "27.hello.4",
        is_blind=False,
    ),
    Row(
        "hello",
        "hello tells of one job",
        "                self.answer(respond_stream(hello, held))\n",
        ("                self.answer(respond_stream(hello, held))\n                break\n"),
        "27.hello.4",
        is_blind=False,
    ),
    Row(
        "hello",
        "hello has no end",
        "        self.answer(end_of_stream(hello))\n",
        "",
        "27.hello.15",
        is_blind=False,
    ),
    Row(
        "hello",
        "hello ends well",
        "        self.answer(end_of_stream(hello))\n",
        "        self.answer(respond(hello))\n",
        "27.hello.6",
        is_blind=False,
    ),
    Row(
        "hello",
        "t_submit is rounded",
        'held |= {"userid": job.userid, "t_submit": job.t_submit}',
        'held |= {"userid": job.userid, "t_submit": round(job.t_submit)}',
        "27.hello.11",
        is_blind=False,
    ),
    Row(
        "hello",
        "the priority is that of the submission",
        'held: dict[str, Any] = {"id": job.id, "priority": job.priority}',
        'held: dict[str, Any] = {"id": job.id, "priority": DEFAULT}',
        "27.criteria.6",
        is_blind=False,
    ),
    Row(
        "hello",
        "there is no user in hello",
        'held |= {"userid": job.userid, "t_submit": job.t_submit}',
        'held |= {"t_submit": job.t_submit}',
        "27.hello.9",
        is_blind=False,
    ),
    Row(
        "ready",
        "there is no count",
        '{"count": len(self.waiting())}',
        "None",
        "27.ready.12",
        is_blind=False,
    ),
    Row(
        "ready",
        "all jobs count",
        '{"count": len(self.waiting())}',
        '{"count": len(self.jobs)}',
        "27.ready.12",
        is_blind=False,
    ),
    Row(
        "ready",
        "what was asked is not asked again",
        ("            job.asked = job.canceling = job.freeing = job.granted = False\n"),
        "            job.freeing = job.granted = False\n",
        "27.finalization.5",
        is_blind=False,
    ),
    Row(
        "ready",
        "it asks before ready",
        "        self.scheduler = hello.sender\n",
        "        self.scheduler, self.is_ready = hello.sender, True\n",
        "27.ready.13",
        is_blind=False,
    ),
    Row(
        "ready",
        "what was to be freed is not freed again",
        ("            job.asked = job.canceling = job.freeing = job.granted = False\n"),
        "            job.asked = job.canceling = job.granted = False\n",
        "27.free.1",
        is_blind=False,
    ),
    Row(
        "error",
        "an error of a request ends the job alone",
        (
            "            if response.errnum:\n"
            "                raise FluxError(response.errnum, response.error_text)\n"
        ),
        ("            if response.errnum:\n                return\n"),
        "27.finalization.2",
        is_blind=False,
    ),
    Row(
        "error",
        "jobs fail when the scheduler does",
        '            self.handle.log(3, f"{response.topic}: {error}")\n',
        (
            "            for job in list(self.jobs.values()):\n"
            '                self.fail(job, "alloc", str(error))\n'
        ),
        "27.impl.12",
        is_blind=False,
    ),
    Row(
        "annotate",
        "annotations replace each other",
        ('            job.annotations = merged(job.annotations, answer["annotations"])\n'),
        '            job.annotations = answer["annotations"]\n',
        "27.success.7",
        is_blind=False,
    ),
    Row(
        "annotate",
        "annotations are merged on top alone",
        ('            job.annotations = merged(job.annotations, answer["annotations"])\n'),
        '            job.annotations = job.annotations | answer["annotations"]\n',
        "27.success.7",
        is_blind=False,
    ),
    Row(
        "annotate",
        "null is kept",
        ("        if value is None:\n            found.pop(key, None)\n        elif"),
        "        if",
        "27.success.7",
        is_blind=False,
    ),
    Row(
        "annotate",
        "the event alloc has no annotations",
        '            self.post(job, "alloc", **more)\n',
        '            self.post(job, "alloc")\n',
        "27.success.7",
        is_blind=False,
    ),
    Row(
        "annotate",
        "an object in place of a number is lost",
        ("            found[key] = merged(before if isinstance(before, dict) else {}, value)\n"),
        (
            "            if isinstance(before, dict):\n"
            "                found[key] = merged(before, value)\n"
        ),
        "27.success.7",
        is_blind=False,
    ),
    Row(
        "deny",
        "a denial is no exception",
        '            self.fail(job, "alloc", answer.get("note", ""))\n',
        "            job.state = CLEANUP\n",
        "21.sync.1",
        is_blind=False,
    ),
    Row(
        "deny",
        "the note of a denial is lost",
        '            self.fail(job, "alloc", answer.get("note", ""))\n',
        '            self.fail(job, "alloc", "")\n',
        "27.deny.4",
        is_blind=False,
    ),
    Row(
        "deny",
        "a denial is of another type",
        '            self.fail(job, "alloc", answer.get("note", ""))\n',
        '            self.fail(job, "sched", answer.get("note", ""))\n',
        "27.deny.5",
        is_blind=False,
    ),
    Row(
        "free",
        "nothing is freed",
        ("                self.unsent.append(request(topics.SCHED_FREE, id=job.id))\n"),
        "                pass\n",
        "27.free.1",
        is_blind=False,
    ),
    Row(
        "free",
        "a job is freed twice",
        ("                self.unsent.append(request(topics.SCHED_FREE, id=job.id))\n"),
        (
            "                self.unsent.append(request(topics.SCHED_FREE, id=job.id)"
            ")\n"
            "                self.unsent.append(request(topics.SCHED_FREE, id=job.id)"
            ")\n"
        ),
        "27.impl.9",
        is_blind=False,
    ),
    Row(
        "free",
        "free has no id",
        "request(topics.SCHED_FREE, id=job.id)",
        "request(topics.SCHED_FREE)",
        "27.free.2",
        is_blind=False,
    ),
    Row(
        "free",
        "free is logged before the answer",
        ("                self.unsent.append(request(topics.SCHED_FREE, id=job.id))\n"),
        (
            "                self.unsent.append(request(topics.SCHED_FREE, id=job.id)"
            ")\n"
            "                if job.allocated:\n"
            '                    self.post(job, "free")\n'
        ),
        "27.free.9",
        is_blind=False,
    ),
    Row(
        "free",
        "it is freed before the final release",
        "        if job.allocated and not job.released:\n",
        "        if False:\n",
        "32.start.39",
        is_blind=False,
    ),
    Row(
        "free",
        "the event free is left out",
        ('        if job.allocated:\n            self.post(job, "free")\n'),
        "        job.allocated = False\n",
        "21.states.6",
        is_blind=False,
    ),
    Row(
        "free",
        "a part that is released is all",
        'job.released = context["final"]',
        "job.released = True",
        "32.start.39",
        is_blind=False,
    ),
    Row(
        "start",
        "a job is started twice",
        "        self.unsent.append(start)\n",
        "        self.unsent += [start, start]\n",
        "32.impl.4",
        is_blind=False,
    ),
    Row(
        "start",
        "no reattach",
        "            reattach=job.started and not job.finished,\n",
        "            reattach=False,\n",
        "32.start.9",
        is_blind=False,
    ),
    Row(
        "start",
        "always reattach",
        "            reattach=job.started and not job.finished,\n",
        "            reattach=True,\n",
        "32.start.9",
        is_blind=False,
    ),
    Row(
        "start",
        "reattach is a number",
        "            reattach=job.started and not job.finished,\n",
        "            reattach=int(job.started and not job.finished),\n",
        "32.start.8",
        is_blind=False,
    ),
    Row(
        "start",
        "the user is the owner, start",
        ("            userid=job.userid,\n            jobspec"),
        ("            userid=self.handle.userid,\n            jobspec"),
        "32.start.6",
        is_blind=False,
    ),
    Row(
        "start",
        "there is no jobspec",
        "            jobspec=without_environment(job.spec),\n",
        "",
        "32.start.7",
        is_blind=False,
    ),
    Row(
        "start",
        "jobs of before are not started",
        ("        if job.state == RUN:\n            self.start(job)\n"),
        ("        if job.state == RUN and job.started:\n            self.start(job)\n"),
        "32.start.1",
        is_blind=False,
    ),
    Row(
        "start",
        "a job is started when it is asked for",
        "            job.asked = True\n",
        ("            job.asked = True\n            self.start(job)\n"),
        "32.start.2",
        is_blind=False,
    ),
    Row(
        "start",
        "a canceled job is not taken up again",
        (
            "            if job.starting and not job.finished:\n"
            "                self.start(job)  # the final release has to come\n"
            "                return\n"
            "            if job.running:\n"
            "                return\n"
        ),
        ("            if job.running:\n                return\n"),
        "32.start.23",
        is_blind=False,
    ),
    Row(
        "exec",
        "a second service takes over",
        "        if any(job.running for job in self.jobs.values()):\n",
        "        if False:\n",
        "32.hello.8",
        is_blind=False,
    ),
    Row(
        "exec",
        "no second service is let in",
        "        if any(job.running for job in self.jobs.values()):\n",
        "        if self.service:\n",
        "32.hello.6",
        is_blind=False,
    ),
    Row(
        "exec",
        "hello is answered with the name",
        "        self.answer(respond(hello))\n",
        '        self.answer(respond(hello, {"service": self.service}))\n',
        "32.hello.7",
        is_blind=False,
    ),
    Row(
        "exec",
        "an error ends the job",
        "            lose()\n",
        (
            "            lose()\n"
            "            for job in list(self.jobs.values()):\n"
            "                if job.starting and not is_of_sched:\n"
            '                    self.fail(job, "exec", str(error))\n'
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "answers",
        "the status is the exit code",
        '                self.post(job, "finish", status=data["status"])\n',
        '                self.post(job, "finish", status=data["status"] >> 8)\n',
        "32.start.30",
        is_blind=False,
    ),
    Row(
        "answers",
        "finish is not logged",
        '                self.post(job, "finish", status=data["status"])\n',
        "                job.finished, job.state = True, CLEANUP\n",
        "32.start.30",
        is_blind=False,
    ),
    Row(
        "answers",
        "start is never logged",
        '                self.post(job, "start")\n',
        "                job.started = True\n",
        "21.states.5",
        is_blind=False,
    ),
    Row(
        "answers",
        "a release has all ranks",
        ('                self.post(job, "release", ranks=data["ranks"], final=data["final"])\n'),
        ('                self.post(job, "release", ranks="all", final=data["final"])\n'),
        "32.start.23",
        is_blind=False,
    ),
    Row(
        "answers",
        "parts of a release are left out",
        ('                self.post(job, "release", ranks=data["ranks"], final=data["final"])\n'),
        (
            '                if data["final"]:\n'
            '                    self.post(job, "release", ranks=data["ranks"], final'
            '=data["final"])\n'
        ),
        "32.start.23",
        is_blind=False,
    ),
    Row(
        "answers",
        "notes of exceptions are lost",
        'note = data.get("note", "")',
        'note = ""',
        "32.start.28",
        is_blind=False,
    ),
    Row(
        "answers",
        "every exception is fatal",
        (
            '                self.post(job, "exception", type=data["type"], severity='
            'data["severity"], note=note)\n'
        ),
        (
            '                self.post(job, "exception", type=data["type"], severity='
            "FATAL, note=note)\n"
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "answers",
        "exceptions of the service are left out",
        (
            '                self.post(job, "exception", type=data["type"], severity='
            'data["severity"], note=note)\n'
        ),
        "                pass\n",
        "32.start.24",
        is_blind=False,
    ),
    Row(
        "exceptions",
        "every exception ends a job",
        '            case "exception" if context["severity"] == FATAL:\n',
        '            case "exception":\n',
        "21.exceptions.3",
        is_blind=False,
    ),
    Row(
        "exceptions",
        "one of severity 1 ends a job",
        '            case "exception" if context["severity"] == FATAL:\n',
        '            case "exception" if context["severity"] <= 1:\n',
        "21.exceptions.3",
        is_blind=False,
    ),
    Row(
        "exceptions",
        "a cancel ends no job",
        '            case "exception" if context["severity"] == FATAL:\n',
        (
            '            case "exception" if context["severity"] == FATAL and context'
            '["type"] != "cancel":\n'
        ),
        "27.exceptions.2",
        is_blind=False,
    ),
    Row(
        "exceptions",
        "the oldest job gets the exception",
        (
            '        self.post(job, "exception", type=payload["type"], severity=paylo'
            'ad["severity"], **about)\n'
        ),
        (
            '        self.post(self.jobs[min(self.jobs)], "exception", type=payload["'
            'type"], severity=payload["severity"], **about)\n'
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "exceptions",
        "all jobs are canceled",
        (
            '        self.post(job, "exception", type=payload["type"], severity=paylo'
            'ad["severity"], **about)\n'
        ),
        (
            "        for job in self.jobs.values():\n"
            '            self.post(job, "exception", type=payload["type"], severity=p'
            'ayload["severity"], **about)\n'
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "events",
        "validate is left out",
        '            self.post(job, "validate")\n',
        "            job.state = DEPEND\n",
        "21.states.1",
        is_blind=False,
    ),
    Row(
        "events",
        "depend is left out",
        '            self.post(job, "depend")\n',
        "            job.state = PRIORITY\n",
        "21.states.2",
        is_blind=False,
    ),
    Row(
        "events",
        "there is no clean",
        '        self.post(job, "clean")\n',
        "",
        "21.events.31",
        is_blind=False,
    ),
    Row(
        "events",
        "clean has a context",
        '        self.post(job, "clean")\n',
        '        self.post(job, "clean", status=0)\n',
        "21.events.31",
        is_blind=False,
    ),
    Row(
        "events",
        "events are not stored",
        '            await self.insist(topics.KVS_COMMIT, {"ops": ops})\n',
        '            await self.insist(topics.KVS_COMMIT, {"ops": ops[1:]})\n',
        "21.criteria.6",
        is_blind=False,
    ),
    Row(
        "events",
        "an update is not logged",
        '        self.post(job, "jobspec-update", **updates)\n',
        (
            "        for path, value in updates.items():\n"
            "            job.spec = apply_update(job.spec, path, value)\n"
        ),
        "33.defaults.9",
        is_blind=False,
    ),
    Row(
        "events",
        "an urgency is not logged",
        '            self.post(job, "urgency", urgency=new, userid=asked.userid)\n',
        "            job.urgency, job.state = new, PRIORITY\n",
        "invariant.done-as-answered",
        is_blind=False,
    ),
    Row(
        "restart",
        "jobs that wait are forgotten",
        ('            if events:\n                self.post(job, "flux-restart")\n'),
        (
            "            if events:\n"
            '                self.post(job, "flux-restart")\n'
            "            if job.state < RUN:\n"
            "                del self.jobs[jobid]\n"
        ),
        "21.criteria.8",
        is_blind=False,
    ),
    Row(
        "restart",
        "jobs that run are forgotten",
        ('            if events:\n                self.post(job, "flux-restart")\n'),
        (
            "            if events:\n"
            '                self.post(job, "flux-restart")\n'
            "            if job.state == RUN:\n"
            "                del self.jobs[jobid]\n"
        ),
        "27.hello.4",
        is_blind=False,
    ),
    Row(
        "restart",
        "there is no flux-restart",
        ('            if events:\n                self.post(job, "flux-restart")\n'),
        "",
        "21.events.19",
        is_blind=False,
    ),
    Row(
        "restart",
        "all jobs are canceled, restart",
        ('            if events:\n                self.post(job, "flux-restart")\n'),
        (
            "            if events:\n"
            '                self.post(job, "flux-restart")\n'
            '            self.fail(job, "cancel", "a restart")\n'
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "restart",
        "urgencies of before are forgotten",
        '                job.urgency = context["urgency"]\n',
        "                pass\n",
        "27.alloccancel.4",
        is_blind=False,
    ),
    Row(
        "restart",
        "what is released in part is forgotten",
        "                self.apply(job, event.name, dict(event.context or {}))\n",
        (
            '                if event.name not in ("start", "finish"):\n'
            "                    self.apply(job, event.name, dict(event.context or {}"
            "))\n"
        ),
        "32.start.9",
        is_blind=False,
    ),
    Row(
        "expiration",
        "the scheduler is not asked",
        "                await self.handle.call(topics.SCHED_EXPIRATION, told)\n",
        "                pass\n",
        "27.expiration.1",
        is_blind=False,
    ),
    Row(
        "expiration",
        "a refusal does not count",
        (
            "                if error.errnum != Errno.ENOSYS:  # that is: it does not"
            " mind\n"
            "                    raise\n"
        ),
        "                pass\n",
        "27.expiration.10",
        is_blind=False,
    ),
    Row(
        "expiration",
        "ENOSYS counts as a refusal",
        (
            "                if error.errnum != Errno.ENOSYS:  # that is: it does not"
            " mind\n"
            "                    raise\n"
        ),
        "                raise\n",
        "27.criteria.12",
        is_blind=False,
    ),
    Row(
        "expiration",
        "the expiration is a duration",
        "math.ceil(begin + duration)",
        "math.ceil(duration)",
        "27.expiration.3",
        is_blind=False,
    ),
    Row(
        "expiration",
        "limits cannot become less",
        "math.ceil(begin + duration)",
        ('math.ceil(begin + max(duration, job.spec["attributes"]["system"]["duration"]))'),
        "27.expiration.3",
        is_blind=False,
    ),
    Row(
        "expiration",
        "it counts from the submission",
        "math.ceil(begin + duration)",
        "math.ceil(job.t_submit - 3600 + duration)",
        "27.expiration.3",
        is_blind=False,
    ),
    Row(
        "queue",
        "a stop cancels nothing",
        ("            for job in self.jobs.values():\n                self.cancel(job)\n"),
        "            pass\n",
        "33.admin.6",
        is_blind=False,
    ),
    Row(
        "queue",
        "a stop cancels the first request",
        ("            for job in self.jobs.values():\n                self.cancel(job)\n"),
        (
            "            for job in self.jobs.values():\n"
            "                self.cancel(job)\n"
            "                break\n"
        ),
        "33.admin.6",
        is_blind=False,
    ),
    Row(
        "queue",
        "what is stopped is asked for",
        "if not self.is_ready or self.stopped:",
        "if not self.is_ready:",
        "33.admin.7",
        is_blind=False,
    ),
    Row(
        "queue",
        "a stop ends running jobs",
        ("            for job in self.jobs.values():\n                self.cancel(job)\n"),
        (
            "            for job in self.jobs.values():\n"
            "                self.cancel(job)\n"
            '                self.fail(job, "cancel", "stopped")\n'
        ),
        UNHARMED,
        is_blind=False,
    ),
    Row(
        "queue",
        "disabled queues take jobs",
        "        if not self.enabled:\n",
        "        if False:\n",
        "33.admin.3",
        is_blind=False,
    ),
    Row(
        "queue",
        "disabled queues run no jobs",
        "if not self.is_ready or self.stopped:",
        "if not self.is_ready or self.stopped or not self.enabled:",
        "33.admin.3",
        is_blind=False,
    ),
    Row(
        "queue",
        "a job of an unknown queue is taken",
        '        if "queue" in system:\n',
        "        if False:\n",
        "33.validation.1",
        is_blind=False,
    ),
    Row(
        "queue",
        "a job that is rejected runs",
        "                errors.append([job.id, refusal])\n",
        (
            "                errors.append([job.id, refusal])\n"
            "                self.jobs[job.id] = job\n"
        ),
        "33.validation.4",
        is_blind=False,
    ),
    Row(
        "update",
        "the old jobspec is sent",
        (
            "                    job.spec = apply_update(job.spec, path, value)\n"
            '            case "alloc"'
        ),
        ('                    pass\n            case "alloc"'),
        "33.defaults.7",
        is_blind=False,
    ),
    Row(
        "update",
        "the request is not canceled",
        "        self.cancel(job)  # it is asked for again, with the new jobspec\n",
        "",
        "33.defaults.7",
        is_blind=False,
    ),
)
