"""Standard input for the tasks of jobs, as `flux run` and `flux job attach` send it.

A request has more than the core takes at once, and the core takes one write of a job at a time. So
the pieces wait here, up to a bound; a request beyond it is refused, and no piece of it is written.
A request is answered when the tasks have taken all its data. Data for tasks that have ended is lost
without a word, as with flux-core's shell. For a job that is over or takes no input the answer is
ENOSYS, as if its shell had no such service: flux's programs fail of any other error, even if all
that they had to send is the end of the input.
"""

from __future__ import annotations

import base64
from typing import Final

from flux_trio.attach.exec.guest_namespace import GuestNamespace, Input
from flux_trio.attach.exec.mail import ExecMail, InputOf, Object
from flux_trio.cores.exec.inputs import INPUT_BYTES_MAX
from flux_trio.editions.rfc24 import input_in
from flux_trio.messages import Errno, Request, Response, respond, respond_error

WAITING_BYTES_MAX: Final = 16 << 20  # of one job


class Inputs:
    """`service` is the name of the core."""

    def __init__(self, mail: ExecMail, service: str) -> None:
        self._mail = mail
        self._topic = f"{service}.input"

    def write(self, request: Request, guest: GuestNamespace | None) -> None:
        """Take a request for the standard input of a job."""
        if guest is None:
            self._refuse(request, Errno.ENOSYS, "the job is over")
            return
        try:
            payload = request.payload if isinstance(request.payload, dict) else {}
            data, eof = input_in(payload)
        except ValueError as error:
            self._refuse(request, Errno.EPROTO, f"{request.topic}: {error}")
            return
        if guest.input_bytes + len(data) > WAITING_BYTES_MAX:
            text = f"more than {WAITING_BYTES_MAX} bytes of input wait for the tasks to read"
            self._refuse(request, Errno.EAGAIN, text)
            return
        is_idle = not guest.inputs
        guest.input_bytes += len(data)
        parts = [data[at : at + INPUT_BYTES_MAX] for at in range(0, len(data), INPUT_BYTES_MAX)]
        *first, last = parts or [b""]
        guest.inputs += [Input(part, False, None) for part in first]
        guest.inputs.append(Input(last, eof, request))
        if is_idle:
            self._feed(guest)

    def answered(self, guest: GuestNamespace | None, response: Response) -> None:
        """Take the core's answer to the first piece that waits; feed the next one."""
        if guest is None or not guest.inputs:
            return
        if response.errnum:
            is_ended = response.errnum == Errno.ENOENT
            while guest.inputs:
                self._pop(guest, 0 if is_ended else Errno.ENOSYS, response.error_text)
            return
        self._pop(guest)
        if guest.inputs:
            self._feed(guest)

    def _feed(self, guest: GuestNamespace) -> None:
        piece = guest.inputs[0]
        data = base64.b64encode(piece.data).decode()
        fed: Object = {"id": guest.id, "data": data, "eof": piece.eof}
        self._mail.ask_core(self._topic, fed, InputOf(guest.id))

    def _pop(self, guest: GuestNamespace, errnum: int = 0, text: str = "") -> None:
        piece = guest.inputs.popleft()
        guest.input_bytes -= len(piece.data)
        if piece.request is None:
            return
        if errnum:
            self._refuse(piece.request, errnum, text)
        else:
            self._mail.answer_broker(respond(piece.request))

    def _refuse(self, request: Request, errnum: int, text: str) -> None:
        self._mail.answer_broker(respond_error(request, errnum, text))
