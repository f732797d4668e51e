"""A driver without a link: `placement_driver.py ADDRESS HOSTS KEY_FILE PROGRAM...` starts PROGRAM on hosts of a Ray cluster.

Prints JSON lines: the hosts, then that their agents have started, then how each ended. Reads lines: `kill N`, `again` (tries
to reserve as many hosts once more); at the end of its input it closes the placement.
"""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path

import msgspec

from fastllmload.engine.hosts.placement import cluster
from fastllmload.errors import InputError
from fastllmload.settings import Hosts


class Config(msgspec.Struct, frozen=True):
    key: str
    host: int


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def again(wanted: Hosts) -> str:
    """The code of the refusal."""
    try:
        found = cluster.RayPlacement(wanted, patience_s=2.0)
        found.find()
        found.close()
    except InputError as refused:
        return refused.code
    return ""


def main() -> None:
    address, hosts, key_file, *program = sys.argv[1:]
    wanted = Hosts(address=address, hosts=int(hosts))
    placed = cluster.RayPlacement(wanted, program=program)
    placed.find()
    say(hosts=msgspec.to_builtins(placed.hosts()), driver=placed.driver_address, warnings=placed.warnings)
    key = Path(key_file).read_text()
    agents = placed.start([Config(key, number) for number in range(len(placed.hosts()))])
    say(started=len(agents))
    ended: set[int] = set()
    while True:
        if select.select([sys.stdin], [], [], 0.1)[0]:
            line = sys.stdin.readline()
            if line == "":
                break
            if line.startswith("kill"):
                agents[int(line.split()[1])].kill()
            else:
                say(again=again(wanted))
        for number, agent in enumerate(agents):
            how = agent.poll()
            if how is not None and number not in ended:
                ended.add(number)
                say(host=number, address=agent.node.address, ended=how)
    placed.close(patience_s=0.5)
    say(closed=True)


if __name__ == "__main__":
    main()
