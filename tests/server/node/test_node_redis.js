// test_node_redis.js SERVER [PATTERN] - the server and the client node-redis (npm: redis),
// in both protocols.
'use strict';
const {createClient, createClientPool} = require('redis');
const {assert, check, errorOf, main, test} = require('./live.js');

// A client that is connected; it is ended with the test.
async function connect(t, port, RESP, options = {}) {
    const client = createClient({url: `redis://127.0.0.1:${port}`, RESP, ...options});
    client.on('error', () => {});
    t.after(() => client.isOpen && client.destroy());
    await client.connect();
    return client;
}

async function another(t, client) {
    const copy = client.duplicate();
    copy.on('error', () => {});
    t.after(() => copy.isOpen && copy.destroy());
    await copy.connect();
    return copy;
}

const word = async (promise) => (await errorOf(promise)).message.split(' ')[0];

// EXPLAIN is a map in RESP3, and a flat list in RESP2.
function field(explained, name) {
    return Array.isArray(explained) ? explained[explained.indexOf(name) + 1] : explained[name];
}

// How many wait for a key.
async function waiting(client, key) {
    return field(await client.sendCommand(['EXPLAIN', key]), 'waiters_count');
}

function in_both(name, f) {
    for (const RESP of [2, 3]) test(`RESP${RESP}: ${name}`, (t) => f(t, RESP));
}

in_both('node-redis acquires, extends, checks and releases', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP);
    check(await client.ping(), 'PONG');
    const [fence, held, lease, waited, overlapping] = await client.sendCommand(
        ['ACQUIRE', 'k', 'LEASE', '60000', 'VALUE', 'v', 'NOTE', 'from node-redis']);
    check([held, lease, waited, overlapping], [1, 60000, 0, 0]);
    const of = (...words) => client.sendCommand(words.map(String));
    assert(await of('EXTEND', 'k', fence, 120000) > 60000);
    check(await of('CHECK', 'k', fence), 1);
    check((await of('READ', 'k')).slice(0, 2), ['v', fence]);
    check(await of('ACQUIRE', 'k'), null);
    const explained = await of('EXPLAIN', 'k');
    check(Array.isArray(explained), RESP === 2);
    check([field(explained, 'held'), field(explained, 'holders_count')], [1, 1]);
    check(field(field(explained, 'holders')[0], 'fence'), fence);
    check(await of('RELEASE', 'k', fence), 1);
    check(await of('RELEASE', 'k', fence), 0);
    check(await of('READ', 'k'), null);
});

in_both('fences come through exactly', async (t, RESP) => {
    const port = await t.server(), client = await connect(t, port, RESP);
    const line = (await t.raw(port, 'ACQUIRE', 'raw', 'LEASE', '60000')).split('\r\n');
    check(line[0], '*5');
    const raw = line[1].slice(1), fence = (await client.sendCommand(['READ', 'raw']))[1];
    check([String(fence), Number.isSafeInteger(fence)], [raw, true]);
    const [mine] = await client.sendCommand(['ACQUIRE', 'mine', 'LEASE', '60000']);
    assert(mine > fence);
    check((await t.raw(port, 'RELEASE', 'mine', String(mine))).split('\r\n')[0], ':1');
});

in_both('errors have the word that says what they are', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP);
    const of = (...words) => client.sendCommand(words.map(String));
    const [fence] = await of('ACQUIRE', 'k');
    check(await word(of('EXTEND', 'k', fence, 1000)), 'NOLEASE');
    check(await of('RELEASE', 'k'), 1);
    check(await word(of('EXTEND', 'k', fence, 1000)), 'LOST');
    check(await word(of('NONSENSE')), 'ERR');
    check(await client.ping(), 'PONG');
});

in_both('one connection waits while another goes on', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP), second = await another(t, client);
    const [first] = await client.sendCommand(['ACQUIRE', 'k']);
    const granted = second.sendCommand(['ACQUIRE', 'k', 'WAIT', '600000']);
    await t.until(async () => await waiting(client, 'k') === 1, 'it waits');
    check(await client.sendCommand(['RELEASE', 'k', String(first)]), 1);
    assert((await granted)[0] > first);
    check(await client.sendCommand(['ACQUIRE', 'k', 'WAIT', '30']), null);
});

in_both('what a connection held ends with it', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP), second = await another(t, client);
    const [fence] = await second.sendCommand(['ACQUIRE', 'k']);
    const granted = client.sendCommand(['ACQUIRE', 'k', 'WAIT', '600000']);
    await second.close();
    assert((await granted)[0] > fence);
});

in_both('subscribers receive the events of a lock, by name and by pattern', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP), events = await another(t, client);
    const named = [], matched = [];
    await events.subscribe('lock:db:1', (message, channel) => named.push([channel, message]));
    await events.pSubscribe('lock:db:*', (message, channel) => matched.push([channel, message]));
    const [fence] = await client.sendCommand(['ACQUIRE', 'db:1', 'LEASE', '60000']);
    await client.sendCommand(['ACQUIRE', 'web']);
    await client.sendCommand(['RELEASE', 'db:1', String(fence)]);
    const [other] = await client.sendCommand(['ACQUIRE', 'db:2', 'LEASE', '20']);
    await t.until(() => matched.length === 4, 'all four events have come');
    check(named.map(([, message]) => message.split(' ').slice(0, 2)),
        [['granted', String(fence)], ['released', String(fence)]]);
    check(matched.slice(0, 2), named);
    check(matched[3], ['lock:db:2', `expired ${other}`]);
    await events.unsubscribe('lock:db:1');
    await events.pUnsubscribe();
    // In RESP2 the client takes lists of numbers for events from now on; and texts are bytes.
    check(String(await events.sendCommand(['ECHO', 'still here'])), 'still here');
});

test('RESP3: a connection listens and asks at the same time', async (t) => {
    const client = await connect(t, await t.server(), 3), seen = [];
    await client.subscribe('lock:k', (message) => seen.push(message.split(' ')[0]));
    const [fence] = await client.sendCommand(['ACQUIRE', 'k', 'LEASE', '60000']);
    check(await client.sendCommand(['RELEASE', 'k', String(fence)]), 1);
    await t.until(() => seen.length === 2, 'both events have come');
    check(seen, ['granted', 'released']);
});

test('RESP3: news of a lost grant does not disturb a client that knows nothing of it', async (t) => {
    const client = await connect(t, await t.server(), 3), second = await another(t, client);
    const of = (one, ...words) => one.sendCommand(words.map(String));
    const errors = [], id = await of(client, 'CLIENT', 'ID');
    client.on('error', (error) => errors.push(error.message));
    for (let round = 0; round < 10; round++) {
        // While nothing is asked, and while a command has no reply yet.
        const [first] = await of(client, 'ACQUIRE', 'first', 'LEASE', 600000);
        const [other] = await of(client, 'ACQUIRE', 'other', 'LEASE', 600000);
        const [brief] = await of(client, 'ACQUIRE', 'brief', 'LEASE', 1);
        const [gate] = await of(second, 'ACQUIRE', 'gate');
        check(await of(second, 'BREAK', 'first', first, 'NOW'), 2);
        const granted = of(client, 'ACQUIRE', 'gate', 'WAIT', 600000);
        await t.until(async () => await waiting(second, 'gate') === 1, 'it waits');
        check(await of(second, 'BREAK', 'other', other, 'NOW'), 2);
        await t.until(async () => await of(second, 'CHECK', 'brief', brief) === 0, 'it has ended');
        check(await of(second, 'RELEASE', 'gate', gate), 1);
        const reply = await granted;
        check([reply.length, reply[1], reply[0] > gate], [5, 1, true]);
        check(await of(client, 'RELEASE', 'gate', reply[0]), 1);
        check(await of(client, 'ECHO', round), String(round));
    }
    check([await of(client, 'CLIENT', 'ID'), errors], [id, []]);
});

in_both('commands that were sent together are answered each', async (t, RESP) => {
    const client = await connect(t, await t.server(), RESP);
    const grants = await Promise.all(Array.from({length: 300}, (_, i) =>
        client.sendCommand(['ACQUIRE', 'k' + i % 100, 'LEASE', '60000'])));
    check(grants.filter((g) => g === null).length, 200);
    check(new Set(grants.slice(0, 100).map((g) => g[0])).size, 100);
});

in_both('a pool never holds more than the capacity', async (t, RESP) => {
    const port = await t.server();
    const pool = createClientPool({url: `redis://127.0.0.1:${port}`, RESP},
        {minimum: 1, maximum: 10, acquireTimeout: 600000});
    pool.on('error', () => {});
    await pool.connect();
    t.after(() => pool.destroy());
    let inside = 0, most = 0;
    const used = await Promise.all(Array.from({length: 100}, () => pool.execute(async (client) => {
        const [fence] = await client.sendCommand(['ACQUIRE', 'k', 'PER', '3', 'WAIT', '600000']);
        most = Math.max(most, ++inside);
        await new Promise((resolve) => setImmediate(resolve));
        inside--;
        return client.sendCommand(['RELEASE', 'k', String(fence)]);
    })));
    check([used.every((reply) => reply === 1), most <= 3], [true, true]);
});

in_both('node-redis connects again, and goes on with its leases and subscriptions',
    async (t, RESP) => {
        const client = await connect(t, await t.server(), RESP);
        const admin = await another(t, client), events = await another(t, client), seen = [];
        const ids = [await client.sendCommand(['CLIENT', 'ID']),
                     await events.sendCommand(['CLIENT', 'ID'])];
        await events.subscribe('lock:k', (message) => seen.push(message.split(' ')[0]));
        const [fence] = await client.sendCommand(['ACQUIRE', 'k', 'LEASE', '600000']);
        for (const id of ids)
            check(await admin.sendCommand(['CLIENT', 'KILL', 'ID', String(id)]), 1);
        // What was under way is refused when the connection ends; then it goes on.
        await t.until(async () => client.isReady &&
            await client.sendCommand(['CLIENT', 'ID']).catch(() => ids[0]) !== ids[0],
            'it is connected again');
        check(await client.sendCommand(['CHECK', 'k', String(fence)]), 1);
        await t.until(async () => (await admin.pubSubNumSub(['lock:k']))['lock:k'] === 1,
            'it listens again');
        check(await client.sendCommand(['RELEASE', 'k', String(fence)]), 1);
        await t.until(() => seen.includes('released'), 'the event has come');
    });

in_both('node-redis gives the password of its url', async (t, RESP) => {
    const port = await t.server('--password', 's3cret word');
    const socket = {reconnectStrategy: false};
    for (const user of ['', 'default']) {
        const client = await connect(t, port, RESP,
            {url: `redis://${user}:s3cret%20word@127.0.0.1:${port}`, socket});
        check((await client.sendCommand(['ACQUIRE', 'k', 'LEASE', '60000'])) !== null, user === '');
    }
    check(await word(connect(t, port, RESP,
        {url: `redis://:wrong@127.0.0.1:${port}`, socket})), 'WRONGPASS');
    check(await word(connect(t, port, RESP, {socket})), 'NOAUTH');
    if (RESP === 3) return;
    const client = await connect(t, port, undefined, {socket}); // it says no HELLO then
    check(await word(client.sendCommand(['ACQUIRE', 'k'])), 'NOAUTH');
    check(await client.sendCommand(['AUTH', 's3cret word']), 'OK');
    check(await client.sendCommand(['ACQUIRE', 'k']), null);
});

main();
