"""Submit a job, show what it writes, and say how it ended."""

from flux_trio.client import command_jobspec, connect


def main():
    with connect() as client:
        job = client.submit(command_jobspec(["sh", "-c", "echo hello; exit 3"], ntasks=2))
        for piece in job.output():
            print(piece.rank, piece.stream, piece.data.decode().strip())
        print("exit code", job.result())
        print([event.name for event in job.events()][-2:])
        print(len(client.jobs()), "jobs are active")


if __name__ == "__main__":
    main()
