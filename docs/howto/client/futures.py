"""Jobs as futures: commands and functions, in any order, until all are done."""

from concurrent.futures import as_completed

from flux_trio.client import FluxTrioExecutor, JobFailed


def square(number):
    return number * number


def main():
    with FluxTrioExecutor() as executor:
        squares = executor.map(square, range(3))
        commands = {executor.submit(["sh", "-c", f"exit {code}"]): code for code in (0, 3)}
        broken = executor.submit(["/nonexistent/command"], ntasks=2)
        broken.add_event_callback("exception", lambda *_: print("an exception came"))
        for future in as_completed(commands):
            assert future.result() == commands[future]
        try:
            broken.result()
        except JobFailed as error:
            print(str(error).partition(": ")[2])
        print(list(squares))


if __name__ == "__main__":
    main()
