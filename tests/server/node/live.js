// live.js - for live tests of the server with clients for Node.js: what they share.
//
//     const {check, main, test} = require('./live.js');
//
//     test('a ping is answered', async (t) => {
//         const server = await t.server();
//         ...
//         t.after(() => client.disconnect());
//     });
//     main();
//
// Call it so: test_x.js SERVER [PATTERN]. Tests run one after the other and print TAP. Each
// has servers of its own, on ports that the system chose, and a deadline; what it started
// is ended when it ends. Nothing depends on how long anything takes: t.until() waits.
'use strict';
const assert = require('node:assert');
const child_process = require('node:child_process');
const net = require('node:net');

const DEADLINE_MS = 1000 * Number(process.env.SLUICE_TEST_DEADLINE_S || 60);

const program = process.argv[2];
const tests = [];

function test(name, f) {
    tests.push({name, f});
}

const check = (got, wanted) => assert.deepStrictEqual(got, wanted);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Stage {
    constructor() {
        this.ends = [];
        this.said = '';
        this.over = false;
    }

    // What is to be done at the end, the last one first.
    after(f) {
        this.ends.push(f);
    }

    async tidy() {
        this.over = true;
        for (const end of this.ends.reverse()) await end();
    }

    async until(condition, what) {
        while (!this.over) {
            const value = await condition();
            if (value) return value;
            await sleep(5);
        }
        throw new Error('timeout while waiting until ' + what);
    }

    // A server that is ready; its port.
    async server(...options) {
        const child = child_process.spawn(program, ['--port', 'auto', ...options],
            {stdio: ['ignore', 'ignore', 'pipe']});
        let log = '', ended = null;
        const gone = new Promise((resolve) => {
            child.on('exit', (code, signal) => resolve(ended = {code, signal}));
            child.on('error', (e) => resolve(ended = {error: e.message}));
        });
        child.stderr.setEncoding('utf8').on('data', (text) => {
            log += text;
            this.said += text;
        });
        this.after(async () => {
            child.kill('SIGKILL');
            await gone;
        });
        const ready = await this.until(() => ended || / ready: /.test(log), 'the server is ready');
        if (ready === ended) throw new Error('the server ended: ' + JSON.stringify(ended));
        const found = / listening on 127\.0\.0\.1:(\d+)/.exec(log);
        assert(found, 'the server says where it listens');
        return Number(found[1]);
    }

    // What the server writes in answer to one command, as it is: the first line.
    raw(port, ...words) {
        return new Promise((resolve, reject) => {
            const socket = net.connect(port, '127.0.0.1');
            let got = '';
            socket.setEncoding('utf8').on('error', reject);
            socket.on('data', (text) => { got += text; });
            socket.on('end', () => resolve(got));
            socket.write(words.join(' ') + '\r\nQUIT\r\n');
        });
    }
}

// A promise that is rejected when the deadline is over.
function deadline(stage) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => {
            stage.over = true;
            reject(new Error('it took longer than ' + DEADLINE_MS + ' ms'));
        }, DEADLINE_MS);
    });
    return {late, stop: () => clearTimeout(timer)};
}

async function perform({f}) {
    const stage = new Stage();
    const {late, stop} = deadline(stage);
    // What nobody has caught is the fault of the test that runs.
    let stray;
    const strayed = new Promise((_, reject) => { stray = reject; });
    strayed.catch(() => {});
    process.on('uncaughtException', stray).on('unhandledRejection', stray);
    let failure = null;
    try {
        await Promise.race([f(stage), late, strayed]);
    } catch (e) {
        failure = e;
    }
    try {
        await Promise.race([stage.tidy(), late]);
    } catch (e) {
        failure = failure || e;
    }
    stop();
    process.off('uncaughtException', stray).off('unhandledRejection', stray);
    return {failure, said: stage.said};
}

async function main() {
    const chosen = tests.filter(({name}) => name.includes(process.argv[3] || ''));
    let failed = 0, number = 0;
    console.log('1..' + chosen.length);
    for (const one of chosen) {
        const {failure, said} = await perform(one);
        console.log((failure ? 'not ok ' : 'ok ') + ++number + ' - ' + one.name);
        if (!failure) continue;
        failed++;
        const lines = (failure.stack || String(failure)) + '\n' + said;
        for (const line of lines.split('\n')) console.log('#   ' + line);
    }
    process.exit(failed || !chosen.length ? 1 : 0);
}

// The error that a promise is rejected with.
async function errorOf(promise) {
    let value;
    try {
        value = await promise;
    } catch (e) {
        return e;
    }
    throw new Error('an error was expected, not ' + JSON.stringify(value));
}

module.exports = {assert, check, errorOf, main, program, sleep, test};
