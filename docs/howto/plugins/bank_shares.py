"""bank-shares: jobs of banks with a larger share come first; shares are read from a file.

conf = {"file": "/etc/flux/shares.json", "interval": 60}, the file like {"physics": 3, "biology": 1}
"""

import json

import trio

from flux_trio import jobtap


class BankShares(jobtap.Plugin):
    def __init__(self) -> None:
        self.shares: dict[str, float] | None = None

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        if "file" not in self.conf:
            raise jobtap.Reject("which file? conf has no key file")

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int | jobtap.Unavailable:
        if self.shares is None:
            return jobtap.UNAVAILABLE
        share = self.shares.get(str(job.jobspec.attribute("system.bank")), 0)
        return max(0, round(100_000 * share + 1_000 * (job.urgency - 16)))

    @jobtap.on("job.explain")
    def explain(self, job: jobtap.Job) -> str:
        bank = str(job.jobspec.attribute("system.bank"))
        if self.shares is None:
            return "the shares are not known yet"
        return f"bank {bank} has the share {self.shares.get(bank, 0)}"

    def loaded(self) -> None:
        self.start_soon(self.follow)

    async def follow(self) -> None:
        while True:
            try:
                shares = json.loads(await trio.Path(self.conf["file"]).read_text())
            except (OSError, ValueError) as error:
                self.log(jobtap.Level.ERR, f"shares as before: {error}")
            else:
                if shares != self.shares:
                    self.shares = shares
                    self.reprioritize_all()
            await trio.sleep(self.conf.get("interval", 60))
