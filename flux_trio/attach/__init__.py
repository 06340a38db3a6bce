"""Programs that join a live flux-core: monitor, scheduler, execution service; a tap on a module.

Each of them is one client of a broker of flux-core, by the frames of RFC 3 (`messages.native`) on
its socket (`transports.native`).
"""
