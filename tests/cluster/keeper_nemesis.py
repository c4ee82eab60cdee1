"""keeper_nemesis.py - what goes wrong in a cluster on etcd: keepers, nodes, members of etcd and
clients that are killed, stopped and cut off, by a seed; and making all whole again. For
keeper_faults.py.
"""
import os
import random
import signal
import time

from load import MS, now
from nemesis import Nemesis
from nodes import Refused, state_of, until
from redis.exceptions import RedisError

AUTHORITY_MS, SILENCE_MS = 2000, 3000  # src/failover/election.c
ELECTION_MS = 2000  # of etcd, and again if the first one fails


def keeper_of(cluster):
    """(term, number of the node that is the keeper), as the node says that knows the latest;
    (0, None) if nobody says anything."""
    best = 0, None
    for node in cluster.running:
        try:
            said = node.keeper()
            term, who = int(said["term"]), int(said["keeper_node"])
        except (RedisError, OSError, KeyError, ValueError):
            continue
        if who in cluster.nodes and (term, who) > (best[0], best[1] or 0):
            best = term, who
    return best


class KeeperNemesis(Nemesis):
    """A fault is a method: it breaks, and returns what makes it whole again."""

    def __init__(self, cluster, lockers, tellers, book, seed, lease_ms, kinds, say, longest_ms=0):
        """lease_ms: the longest lease that is not in etcd. longest_ms: of a fault; 0: as usual."""
        super().__init__(cluster, lockers, book, seed, lease_ms, kinds, say)
        self.longest_ms = longest_ms
        self.rng = random.Random("keeper nemesis %s" % seed)
        first = [k for k in FIRST if k in kinds]
        rest = [k for k in kinds if k not in first]
        self.rng.shuffle(first)
        self.rng.shuffle(rest)
        self.deck = rest + first  # the last is drawn first
        self.tellers = tellers
        self.hurt = set()  # members of etcd that something was done to in this round
        self.terms = set()
        self.reclaimed, self.counted = 0, {}  # grants; by node, when it was last asked
        self.no_commits = []  # as lines: when nothing was committed after a heal
        self.to_commit = []  # how long after each heal something was, in ms

    @property
    def bound_ms(self):
        return 2 * (SILENCE_MS + ELECTION_MS + AUTHORITY_MS + self.lease_ms)

    # One round.

    def round(self):
        self.hurt = set()
        super().round()

    def how_long_ms(self):
        """Around the length of leases, of authority, and of the silence that is noticed."""
        if self.longest_ms and self.rng.random() < 0.25:
            return self.rng.uniform(0.5, 1) * self.longest_ms
        return self.rng.choice((100, 0.5 * self.lease_ms, 1.01 * self.lease_ms, 0.9 * AUTHORITY_MS,
                                1.1 * AUTHORITY_MS, 1.2 * SILENCE_MS, 1.5 * SILENCE_MS))

    def heal(self):
        """All run and reach each other: since when, and until when is something committed,
        and each key granted?"""
        self.c.heal()
        for part in self.c.parts:
            if part.state == "paused":
                part.resume()
        for part in self.c.parts:
            if part.state == "dead":
                self.bring_back(part)
        self.c.etcd.wait_ready()
        for node in self.c:
            node.wait_ready()
        for pid in [*self.crowd.pids.values(), *self.tellers.pids.values()]:
            os.kill(pid, signal.SIGCONT)
        self.book.note("HEAL", bound_ms=self.bound_ms, keys=self.crowd.keys)
        self.wait_progress()
        self.terms.add(keeper_of(self.c)[0])
        self.count_reclaimed()
        time.sleep(self.rng.uniform(0, 1.0))

    def count_reclaimed(self):
        """Nodes count from their start."""
        for node in self.c:
            try:
                count = int(node.keeper()["reclaimed"])
            except (RedisError, OSError, KeyError, ValueError):
                continue
            before = self.counted.get(node.id, 0)
            self.reclaimed += count - before if count >= before else count
            self.counted[node.id] = count

    def bring_back(self, part):
        if part.id not in self.ended:
            self.died += ["%s died by itself; it said:" % part]
            self.died += part.since_start().splitlines()[-20:]
        self.ended.discard(part.id)
        part.start(wait=False)

    def wait_progress(self):
        healed, commits, first = now(), self.tellers.all_commits(), None
        while now() - healed < 1.1 * self.bound_ms * MS:
            if first is None and self.tellers.all_commits() > commits + self.tellers.count:
                first = now()
            if first and all(self.crowd.last(key) >= healed for key in self.crowd.keys):
                break
            time.sleep(0.01)
        if first is None:
            self.no_commits += ["nothing was committed for %.1f s after all was whole" % (
                (now() - healed) / 1e9)] + [line for n in self.c for line in
                                            n.log.splitlines()[-10:]]
        else:
            self.to_commit.append((first - healed) / MS)

    # Which ones.

    def keeper(self):
        number = keeper_of(self.c)[1]
        return self.c[number if number else self.some(1)[0]]

    def not_keeper(self):
        keeper = self.keeper()
        others = [n for n in self.c if n is not keeper]
        return self.rng.choice(others or [keeper])

    def member(self, which):
        """A member of etcd, unless that would be too many of them."""
        if len(self.hurt) + 1 > (len(self.c.etcd) - 1) // 2:
            raise Refused("enough members of etcd are hurt")
        if which == "leader":
            m = self.c.etcd.leader(seconds=5)
        else:
            m = self.rng.choice([m for m in self.c.etcd.running] or [None])
        if m is None or m.state != "up":
            raise Refused("no such member runs")
        self.hurt.add(m.id)
        return m

    # Processes.

    def end(self, part):
        self.ended.add(part.id)
        part.kill()

        def back():
            if part.pid is None:
                self.ended.discard(part.id)
                part.start(wait=False)
        if self.rng.random() < 0.3:
            back()
            return [], "%s, and at once back" % part
        return [back], str(part)

    def halt(self, part):
        if part.state != "up":
            raise Refused("%s does not run" % part)
        part.pause()

        def resume():
            if part.state == "paused":
                part.resume()
        return [resume], str(part)

    def kill_keeper(self):
        return self.end(self.keeper())

    def kill_node(self):
        return self.end(self.not_keeper())

    def kill_keeper_twice(self):
        """And the one that comes after it, as soon as it is there."""
        term, number = keeper_of(self.c)
        if number is None or len(self.c.running) < len(self.c):
            raise Refused("not all is well before")
        undo, _ = self.end(self.c[number])
        until(lambda: keeper_of(self.c)[0] > term, "another keeper is there", 20)
        second = self.keeper()
        more, _ = self.end(second)
        return undo + more, "%d, then %s" % (number, second)

    def kill_all_nodes(self):
        undo = []
        for node in self.c.running:
            undo += self.end(node)[0]
        return undo, "all"

    def stop_keeper(self):
        """SIGTERM, as for an upgrade."""
        keeper = self.keeper()
        if keeper.state != "up":  # it would stop when it goes on
            raise Refused("%s does not run" % keeper)
        self.ended.add(keeper.id)
        keeper.stop()
        return [], str(keeper)  # heal() starts it

    def pause_keeper(self):
        return self.halt(self.keeper())

    def pause_node(self):
        return self.halt(self.not_keeper())

    def kill_etcd_leader(self):
        return self.end(self.member("leader"))

    def kill_etcd_member(self):
        return self.end(self.member("any"))

    def pause_etcd_leader(self):
        return self.halt(self.member("leader"))

    def pause_etcd_member(self):
        return self.halt(self.member("any"))

    def pause_etcd_majority(self):
        """For a moment: nobody can do anything."""
        paused = []
        for m in self.c.etcd.running[:len(self.c.etcd) // 2 + 1]:
            m.pause()
            paused.append(m)
        time.sleep(self.rng.uniform(0.2, 1.5))
        for m in paused:
            m.resume()
        return [], ", ".join(map(str, paused))

    def compact(self):
        return [], "revision %d" % self.c.etcd.compact()

    # The net. All is healed at once at the end of the round.

    def cut_from(self, part, others, what):
        reset = self.rng.random() < 0.4
        for other in others:
            if other is not part:
                self.c.cut(*(p.title if p in list(self.c.etcd) else p.id
                             for p in (part, other)), reset=reset)
        return [self.c.heal], "%s from %s%s" % (part, what, ", reset" * reset)

    def cut_keeper_from_etcd(self):
        return self.cut_from(self.keeper(), list(self.c.etcd), "etcd")

    def cut_keeper_from_nodes(self):
        return self.cut_from(self.keeper(), list(self.c), "nodes")

    def cut_keeper_from_all(self):
        return self.cut_from(self.keeper(), self.c.parts, "all")

    def cut_keeper_from_some(self):
        """A minority of nodes does not reach it; the rest does."""
        keeper = self.keeper()
        others = [n for n in self.c if n is not keeper]
        few = self.rng.sample(others, max(1, (len(self.c) - 1) // 2))
        return self.cut_from(keeper, few, ", ".join(map(str, few)))

    def cut_node_from_etcd(self):
        return self.cut_from(self.not_keeper(), list(self.c.etcd), "etcd")

    def cut_node_from_all(self):
        return self.cut_from(self.not_keeper(), self.c.parts, "all")

    def cut_etcd_leader(self):
        return self.cut_from(self.member("leader"), list(self.c.etcd), "members")

    def cut_etcd_member(self):
        return self.cut_from(self.member("any"), self.c.parts, "all")

    def cut_clients(self):
        self.c.cut(0, self.rng.choice((self.keeper(), self.not_keeper())).id,
                   one_way=self.rng.random() < 0.5)
        return [self.c.heal], ""

    # Clients.

    def some_tellers(self):
        return self.rng.sample(range(self.tellers.count), self.rng.randint(1, 2))

    def pause_clients(self):
        undo, what = super().pause_clients()
        chosen = self.some_tellers()
        for i in chosen:
            os.kill(self.tellers.pids[i], signal.SIGSTOP)
            until(lambda: state_of(self.tellers.pids[i]) in "TZ", "client %d is stopped" % i)
        return undo + [lambda: [os.kill(self.tellers.pids[i], signal.SIGCONT)
                                for i in chosen]], what + str(chosen)

    def kill_clients(self):
        undo, what = super().kill_clients()
        chosen = self.some_tellers()
        for i in chosen:
            self.tellers.kill(i)
            self.tellers.start(i)
        return undo, what + str(chosen)


KINDS = {
    "kill keeper": KeeperNemesis.kill_keeper,
    "kill node": KeeperNemesis.kill_node,
    "kill keeper twice": KeeperNemesis.kill_keeper_twice,
    "kill all nodes": KeeperNemesis.kill_all_nodes,
    "stop keeper": KeeperNemesis.stop_keeper,
    "pause keeper": KeeperNemesis.pause_keeper,
    "pause node": KeeperNemesis.pause_node,
    "kill etcd leader": KeeperNemesis.kill_etcd_leader,
    "kill etcd member": KeeperNemesis.kill_etcd_member,
    "pause etcd leader": KeeperNemesis.pause_etcd_leader,
    "pause etcd member": KeeperNemesis.pause_etcd_member,
    "pause etcd majority": KeeperNemesis.pause_etcd_majority,
    "compact": KeeperNemesis.compact,
    "cut keeper from etcd": KeeperNemesis.cut_keeper_from_etcd,
    "cut keeper from nodes": KeeperNemesis.cut_keeper_from_nodes,
    "cut keeper from all": KeeperNemesis.cut_keeper_from_all,
    "cut keeper from some": KeeperNemesis.cut_keeper_from_some,
    "cut node from etcd": KeeperNemesis.cut_node_from_etcd,
    "cut node from all": KeeperNemesis.cut_node_from_all,
    "cut etcd leader": KeeperNemesis.cut_etcd_leader,
    "cut etcd member": KeeperNemesis.cut_etcd_member,
    "cut clients": KeeperNemesis.cut_clients,
    "pause clients": KeeperNemesis.pause_clients,
    "kill clients": KeeperNemesis.kill_clients,
}
KeeperNemesis.methods = KINDS
# Those that a short run begins with.
FIRST = ["kill keeper", "pause keeper", "cut keeper from etcd", "cut keeper from nodes",
         "kill etcd leader", "cut etcd leader"]


def kinds_for(netns):
    return [k for k in KINDS if netns or k != "cut clients"]


