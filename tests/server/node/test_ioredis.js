// test_ioredis.js SERVER [PATTERN] - the server and the client ioredis.
'use strict';
const Redis = require('ioredis');
const {assert, check, errorOf, main, test} = require('./live.js');

// A client of a server, closed at the end of the test. Its errors are those of commands.
function connect(t, port, options = {}) {
    const client = new Redis({host: '127.0.0.1', port, ...options});
    client.on('error', () => {});
    t.after(() => client.disconnect());
    return client;
}

function another(t, client, options) {
    const copy = client.duplicate(options);
    copy.on('error', () => {});
    t.after(() => copy.disconnect());
    return copy;
}

// How many wait for a key.
async function waiting(client, key) {
    const explained = await client.call('EXPLAIN', key);
    return explained[explained.indexOf('waiters_count') + 1];
}

test('ioredis finds the server ready, by what INFO says', async (t) => {
    const commands = [];
    for (const enableReadyCheck of [false, true]) {
        const port = await t.server(), client = connect(t, port, {enableReadyCheck});
        await new Promise((resolve) => client.once('ready', resolve));
        check(await client.ping(), 'PONG'); // all that was sent before has been answered
        const stats = await t.raw(port, 'INFO', 'stats');
        commands.push(Number(/total_commands_processed:(\d+)/.exec(stats)[1]));
        assert(/^redis_version:\d/m.test(await client.info()), 'INFO has a version');
    }
    check(commands[1] - commands[0], 1); // the INFO that it asked for by itself
});

test('ioredis acquires, extends, checks and releases', async (t) => {
    const client = connect(t, await t.server());
    const [fence, held, lease, waited, overlapping] =
        await client.call('ACQUIRE', 'k', 'LEASE', 60000, 'VALUE', 'v', 'NOTE', 'from ioredis');
    check([held, lease, waited, overlapping], [1, 60000, 0, 0]);
    assert(await client.call('EXTEND', 'k', fence, 120000) > 60000);
    check(await client.call('CHECK', 'k', fence), 1);
    check((await client.call('READ', 'k')).slice(0, 2), ['v', fence]);
    check(await client.call('ACQUIRE', 'k'), null);
    check(await client.call('RELEASE', 'k', fence), 1);
    check(await client.call('RELEASE', 'k', fence), 0);
    check(await client.call('READ', 'k'), null);
});

test('fences come through ioredis exactly', async (t) => {
    const port = await t.server();
    const client = connect(t, port);
    const text = connect(t, port, {stringNumbers: true});
    let last = 0;
    for (let i = 0; i < 100; i++) {
        const [fence] = await client.call('ACQUIRE', 'k' + i);
        assert(Number.isSafeInteger(fence) && fence > last, `${fence} is after ${last}`);
        last = fence;
    }
    const line = (await t.raw(port, 'ACQUIRE', 'raw', 'LEASE', '60000')).split('\r\n');
    check(line[0], '*5');
    const raw = line[1].slice(1);
    check(String((await client.call('READ', 'raw'))[1]), raw);
    check((await text.call('READ', 'raw'))[1], raw);
    check(await client.call('CHECK', 'raw', Number(raw)), 1);
    const [mine] = await client.call('ACQUIRE', 'mine', 'LEASE', 60000);
    check((await t.raw(port, 'RELEASE', 'mine', String(mine))).split('\r\n')[0], ':1');
});

test('errors have the word that says what they are', async (t) => {
    const client = connect(t, await t.server());
    const word = async (...words) => (await errorOf(client.call(...words))).message.split(' ')[0];
    const [fence] = await client.call('ACQUIRE', 'k');
    check(await word('EXTEND', 'k', fence, 1000), 'NOLEASE');
    check(await client.call('RELEASE', 'k'), 1);
    check(await word('EXTEND', 'k', fence, 1000), 'LOST');
    check(await word('ACQUIRE', 'k', 'NONSENSE'), 'ERR');
    check(await word('NONSENSE'), 'ERR');
    check(await word('ACQUIRE', 'x'.repeat(2000)), 'TOOBIG');
    check((await errorOf(client.call('NONSENSE'))).name, 'ReplyError');
    check(await client.ping(), 'PONG');
});

test('keys, values and notes of any bytes go through ioredis', async (t) => {
    const client = connect(t, await t.server());
    const key = Buffer.from([0, 255, 13, 10, 36, 32, 128]), value = Buffer.from([10, 13, 0, 254]);
    const [fence] = await client.callBuffer('ACQUIRE', key, 'LEASE', 60000, 'VALUE', value);
    const read = await client.callBuffer('READ', key);
    check(Buffer.compare(read[0], value), 0);
    check(await client.call('CHECK', key, fence), 1);
});

test('one connection waits while another goes on', async (t) => {
    const client = connect(t, await t.server()), second = another(t, client);
    const [first] = await client.call('ACQUIRE', 'k');
    const granted = second.call('ACQUIRE', 'k', 'WAIT', 600000);
    await t.until(async () => await waiting(client, 'k') === 1, 'it waits');
    check(await client.call('ACQUIRE', 'other', 'LEASE', 1000).then((g) => g[1]), 1);
    check(await client.call('RELEASE', 'k', first), 1);
    const [fence, held] = await granted;
    assert(fence > first);
    check(held, 1);
    check(await client.call('ACQUIRE', 'k', 'WAIT', 30), null);
});

test('what a connection of ioredis held ends with it', async (t) => {
    const client = connect(t, await t.server()), second = another(t, client);
    const [fence] = await second.call('ACQUIRE', 'k');
    const [leased] = await second.call('ACQUIRE', 'leased', 'LEASE', 600000);
    const events = connect(t, client.options.port), seen = [];
    events.on('message', (channel, message) => seen.push([channel, message]));
    await events.subscribe('lock:k');
    const granted = client.call('ACQUIRE', 'k', 'WAIT', 600000);
    await t.until(async () => await waiting(another(t, client), 'k') === 1, 'it waits');
    second.disconnect();
    assert((await granted)[0] > fence);
    check(await client.call('CHECK', 'leased', leased), 1);
    await t.until(() => seen.length >= 2, 'both events are there');
    check(seen[0], ['lock:k', `released ${fence} why=disconnect`]);
});

test('subscribers receive the events of a lock, by name and by pattern', async (t) => {
    const client = connect(t, await t.server()), events = another(t, client);
    const named = [], matched = [];
    events.on('message', (channel, message) => named.push([channel, message]));
    events.on('pmessage', (pattern, channel, message) => matched.push([pattern, channel, message]));
    check(await events.subscribe('lock:db:1'), 1);
    check(await events.psubscribe('lock:db:*'), 2);
    const [fence] = await client.call('ACQUIRE', 'db:1', 'LEASE', 60000);
    await client.call('ACQUIRE', 'web');
    await client.call('EXTEND', 'db:1', fence, 120000);
    await client.call('RELEASE', 'db:1', fence);
    const [other] = await client.call('ACQUIRE', 'db:2', 'LEASE', 20);
    await t.until(() => matched.length === 5, 'all five events have come');
    const words = named.map(([channel, message]) => [channel, ...message.split(' ').slice(0, 2)]);
    check(words, [['lock:db:1', 'granted', String(fence)], ['lock:db:1', 'extended', String(fence)],
                  ['lock:db:1', 'released', String(fence)]]);
    check(matched.slice(0, 3).map((m) => m.slice(1)), named);
    check(matched[4], ['lock:db:*', 'lock:db:2', `expired ${other}`]);
    check(await events.unsubscribe('lock:db:1'), 1);
    check(await events.punsubscribe(), 0);
    check(await events.ping(), 'PONG');
    check((await events.call('ACQUIRE', 'db:3', 'LEASE', 1000))[1], 1);
});

test('a pipeline is answered in order, errors among it', async (t) => {
    const client = connect(t, await t.server());
    const pipeline = client.pipeline();
    for (let i = 0; i < 300; i++) {
        pipeline.call('ACQUIRE', 'k' + i, 'LEASE', 60000);
        if (i % 100 === 50) pipeline.call('ACQUIRE', 'k' + i, 'WHAT');
    }
    const replies = await pipeline.exec();
    check(replies.length, 303);
    check(replies.filter(([error]) => error).map(([error]) => error.message.split(' ')[0]),
        ['ERR', 'ERR', 'ERR']);
    const fences = replies.filter(([error]) => !error).map(([, reply]) => reply[0]);
    check(new Set(fences).size, 300);
    check(fences, [...fences].sort((a, b) => a - b));
    check(replies[51][0] && replies[51][0].name, 'ReplyError');
});

test('commands that ioredis bundles by itself are answered each', async (t) => {
    const client = connect(t, await t.server(), {enableAutoPipelining: true});
    const grants = await Promise.all(Array.from({length: 300}, (_, i) =>
        client.call('ACQUIRE', 'k' + i % 100, 'LEASE', 60000)));
    check(grants.filter((g) => g === null).length, 200);
    check(grants.slice(0, 100).every((g) => g[1] === 1), true);
    check(new Set(grants.slice(0, 100).map((g) => g[0])).size, 100);
});

test('many connections never hold more than the capacity', async (t) => {
    const client = connect(t, await t.server());
    const pool = Array.from({length: 20}, () => another(t, client));
    const held = [];
    for (const one of pool.slice(0, 4))
        held.push(((await one.call('ACQUIRE', 'k', 'PER', 3)) || [])[1]);
    check(held, [1, 2, 3, undefined]);
    for (const one of pool.slice(0, 3)) check(await one.call('RELEASE', 'k'), 1);
    let inside = 0, most = 0, done = 0;
    await Promise.all(pool.map(async (one) => {
        for (let i = 0; i < 10; i++) {
            const [fence] = await one.call('ACQUIRE', 'k', 'PER', 3, 'WAIT', 600000);
            most = Math.max(most, ++inside);
            await new Promise((resolve) => setImmediate(resolve));
            inside--;
            check(await one.call('RELEASE', 'k', fence), 1);
            done++;
        }
    }));
    check([done, most <= 3], [200, true]);
});

test('ioredis connects again, and goes on with its leases and subscriptions', async (t) => {
    const client = connect(t, await t.server()), admin = another(t, client);
    const events = another(t, client), seen = [];
    events.on('message', (channel, message) => seen.push(message.split(' ')[0]));
    const ids = [await client.client('ID'), await events.client('ID')];
    await events.subscribe('lock:k');
    const [fence] = await client.call('ACQUIRE', 'k', 'LEASE', 600000);
    for (const id of ids) check(await admin.call('CLIENT', 'KILL', 'ID', id), 1);
    await t.until(async () => client.status === 'ready' && await client.client('ID') !== ids[0],
        'it is connected again');
    check(await client.call('CHECK', 'k', fence), 1);
    await t.until(async () => (await admin.call('PUBSUB', 'NUMSUB', 'lock:k'))[1] === 1,
        'it listens again');
    check(await client.call('RELEASE', 'k', fence), 1);
    await t.until(() => seen.includes('released'), 'the event has come');
});

test('ioredis gives the password of its url', async (t) => {
    const port = await t.server('--password', 's3cret word');
    const of = (url, options) => {
        const client = new Redis(url, {retryStrategy: null, maxRetriesPerRequest: 0, ...options});
        client.on('error', () => {});
        t.after(() => client.disconnect());
        return client;
    };
    const good = of(`redis://:s3cret%20word@127.0.0.1:${port}`);
    check(await good.ping(), 'PONG');
    check(await of(`redis://default:s3cret%20word@127.0.0.1:${port}`).ping(), 'PONG');
    const none = of(`redis://127.0.0.1:${port}`, {enableReadyCheck: false});
    check((await errorOf(none.call('ACQUIRE', 'k'))).message.split(' ')[0], 'NOAUTH');
    check((await errorOf(none.auth('wrong'))).message.split(' ')[0], 'WRONGPASS');
    check(await none.auth('s3cret word'), 'OK');
    check((await none.call('ACQUIRE', 'k'))[1], 1);
});

main();
