"""A module of flux-core: `greeter.hello` answers with a greeting."""

import trio

from flux_trio.messages import Level, Request, respond


async def mod_main(flux, *args, task_status=trio.TASK_STATUS_IGNORED):
    word = args[0] if args else "hello"
    if not word.isalpha():
        raise ValueError(f"expected a word, got {word}")  # `flux module load` fails
    flux.log(Level.INFO, f"says {word}")
    task_status.started()  # now the module is loaded
    while True:  # until `flux module remove` cancels it
        for message in await flux.receive():
            if isinstance(message, Request) and message.topic == f"{flux.name}.hello":
                flux.send(respond(message, {"text": f"{word}, user {message.userid}"}))
