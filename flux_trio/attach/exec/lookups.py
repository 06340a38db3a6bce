"""What the core reads of a job, in the shapes of flux-core's kvs; see `bridge`."""

from __future__ import annotations

from collections.abc import Mapping

from flux_trio.attach import kvs
from flux_trio.attach.exec.guest_namespaces import GuestNamespaces
from flux_trio.attach.exec.jobspecs import jobspec_in
from flux_trio.attach.exec.leftovers import Leftovers
from flux_trio.attach.exec.mail import ExecMail, Leftover, ValueRead
from flux_trio.attach.mail import OneValueRead, Reads
from flux_trio.cores.exec.calls import StoredKey
from flux_trio.editions import kvs as our_kvs
from flux_trio.formats import (
    FluidForm,
    FormatError,
    format_fluid,
    job_directory_of,
    job_key,
    parse_fluid,
)
from flux_trio.messages import Errno, FluxError, Level, Request, Response


class Lookups:
    """Passes lookups on once the job's namespace is open; `jobid_path` is the instance's."""

    def __init__(
        self,
        mail: ExecMail,
        guests: GuestNamespaces,
        leftovers: Leftovers,
        jobid_path: str,
        id_form: FluidForm,
    ) -> None:
        self._mail = mail
        self._guests = guests
        self._leftovers = leftovers
        self._jobid_path = jobid_path.rstrip("/")
        self._id_form: FluidForm = id_form

    def look_up(self, request: Request) -> None:
        key = our_kvs.LOOKUP.read(request).key
        directory = job_directory_of(key)
        if directory is None or not self._guests.holds(request, parse_fluid(directory)):
            stored = _stored_key(key)
            self._mail.ask(*kvs.look_up(stored), ValueRead(request, stored))

    def look_up_all(self, request: Request) -> None:
        reads = Reads(request, our_kvs.LOOKUP_ALL.read(request).keys)
        for key in reads.keys:
            self._mail.ask(*kvs.look_up(key), OneValueRead(reads, key))

    def value_read(self, call: ValueRead, response: Response) -> None:
        request, key = call.request, call.key
        try:
            text = kvs.text_in(response, key)
            if text is not None and key.endswith(".J"):
                text = jobspec_in(text, self._variables(key))
        except FluxError as error:
            self._mail.answer_core(request, error.text, error.errnum)
        except FormatError as error:
            self._mail.answer_core(request, f"{key}: {error}", Errno.EPROTO)
        else:
            if text is None:
                self._mail.answer_core(request, f"{key}: no such key", Errno.ENOENT)
            else:
                self._mail.answer_core(request, our_kvs.VALUE.write(our_kvs.Value(text)))

    def one_value_read(self, call: OneValueRead, response: Response) -> None:
        """Pass on all values when they are read, or the first error."""
        match call.reads.to, call.reads.take(call.key, response):
            case Request() as request, FluxError() as error:
                self._mail.answer_core(request, error.text, error.errnum)
            case Request() as request, list() as values:
                self._mail.answer_core(request, our_kvs.VALUES.write(our_kvs.Values(values)))
            case Leftover(jobid), FluxError() as error:
                self._mail.log(Level.ERR, f"job {jobid}, which is over: {error.text}")
            case Leftover(jobid), list() as values:
                self._leftovers.read(jobid, values)

    def _variables(self, key: str) -> Mapping[str, str]:
        """Return the variables that say to the tasks of a job where it is in flux-core."""
        jobid = parse_fluid(job_directory_of(key))
        name = format_fluid(jobid, self._id_form)
        return {
            "FLUX_JOB_ID_PATH": f"{self._jobid_path}/{name}",
            "FLUX_KVS_NAMESPACE": f"job-{jobid}",
        }


def _stored_key(key: str) -> str:
    """Return the key at which flux-core keeps the value of `key`."""
    directory = job_directory_of(key)
    if directory is not None and key == f"{directory}.{StoredKey.JOBSPEC.value}":
        return job_key(parse_fluid(directory), "J")
    return key
