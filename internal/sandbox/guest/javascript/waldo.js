// The library of a script in a sandbox: tools, files, a logger, under the names of waldo.py. waldo does not
// trust it: every call goes over descriptor 3 to waldo, which decides. The value of this file is a function
// that boot.js calls with require.
(function (require) {
  'use strict';
  const fs = require('fs');
  const path = require('path');

  class ToolError extends Error {
    constructor(message, tool, meta, result) {
      super(message);
      meta = meta || {};
      this.name = new.target.name;
      this.tool = tool || '';
      this.result = result;
      this.decision_id = meta['waldo/decision_id'] || '';
      this.call_id = meta['waldo/call_id'] || '';
      this.status = meta['waldo/status'] || 'failed';
      this.side_effect = meta['waldo/side_effect'] || 'unknown';
      this.reasons = meta['waldo/reasons'] || [];
      this.approval_id = meta['waldo/approval_id'] || '';
      this.confirm = meta['waldo/confirm'] || '';
    }
  }
  class Denied extends ToolError {}
  class Waiting extends ToolError {}

  // ---- results ----

  // Result is the text of a tool's answer, with its structured fields as properties. A list can be iterated,
  // indexed and counted.
  class Result {
    constructor(text, data, structured, content, meta) {
      const hidden = { text, data, structured, content, meta, decision_id: meta['waldo/decision_id'] || '', facts: meta['waldo/facts'] || {} };
      for (const [k, value] of Object.entries(hidden)) Object.defineProperty(this, '_' + k, { value });
      return new Proxy(this, fields);
    }
    toString() { return this._text; }
    valueOf() { return this._text; }
    toJSON() { return this._data === undefined ? this._text : this._data; }
    [Symbol.toPrimitive]() { return this._text; }
    [Symbol.iterator]() { return (rows(this) || this._text)[Symbol.iterator](); }
    [require('util').inspect.custom]() { return this._data === undefined ? this._text : this._data; }
  }

  const own = ['text', 'data', 'structured', 'content', 'meta', 'decision_id', 'facts'];

  // rows returns the list in an answer: the answer itself, or the only list of an object.
  function rows(r) {
    if (Array.isArray(r._data)) return r._data;
    const lists = r._data && typeof r._data === 'object' ? Object.values(r._data).filter(Array.isArray) : [];
    return lists.length === 1 ? lists[0] : null;
  }

  const fields = {
    get(target, name) {
      const data = target._data;
      if (typeof name === 'symbol' || name in target) {
        const v = Reflect.get(target, name, target);
        return typeof v === 'function' ? v.bind(target) : v;
      }
      if (data && typeof data === 'object' && !Array.isArray(data) && Object.hasOwn(data, name)) return data[name];
      if (own.includes(name)) return target['_' + name];
      const from = rows(target) || target._text;
      return typeof from[name] === 'function' ? from[name].bind(from) : from[name];
    },
    has(target, name) {
      const data = target._data;
      return (data !== null && typeof data === 'object' && name in data) || name in target;
    },
  };

  // Held is the result of a call that is held until a human has said yes. A promise cannot be waited for by a property,
  // so resultOf gives the result.
  const isHeld = Symbol('held');
  const unmade = (name) => new ToolError(`${name} is held and not made yet: write (await resultOf(x)).field to wait for a human's yes`, name);

  const unread = new Set(); // what asks for the held results that the program has not asked for

  // holdResult asks for all results of a list at once: a program that is written down later has no other way to them.
  function holdResult(number, tool) {
    let made;
    const ask = (all = true) => {
      if (made) return made;
      unread.delete(ask);
      made = askResult(number, tool);
      const listed = all ? [...unread] : [];
      const read = () => { for (const other of listed) other(false).catch(() => {}); };
      made.then(read, read);
      return made;
    };
    unread.add(ask);
    return new Proxy({}, {
      get(_, name) {
        if (name === isHeld) return ask;
        if (name === require('util').inspect.custom) return () => `held call ${number} of ${tool}`;
        if (name === 'then' || name === 'constructor' || (typeof name === 'symbol' && name !== Symbol.toPrimitive && name !== Symbol.iterator)) return undefined;
        throw unmade(tool);
      },
      has() { throw unmade(tool); },
      ownKeys() { throw unmade(tool); },
    });
  }

  const askResult = async (number, tool) => result(await ask('waldo/result', { number }), tool);

  // resultOf returns the result of a held call, once it is made. Any other value is its own.
  async function resultOf(x) { x = await x; return x !== null && typeof x === 'object' && x[isHeld] ? x[isHeld]() : x; }

  function result(answer, tool) {
    const meta = answer._meta || {};
    if (meta['waldo/held']) return holdResult(meta['waldo/held'], tool);
    const content = answer.content || [];
    let text = content.filter((c) => c.type === 'text').map((c) => c.text || '').join('\n');
    const structured = answer.structuredContent;
    let data = structured;
    if (data === undefined && (text[0] === '{' || text[0] === '[')) {
      try { data = JSON.parse(text); } catch { /* it only looks like JSON */ }
    } else if (data && typeof data === 'object' && Object.keys(data).join() === 'result') {
      data = data.result; // servers wrap other values than objects so
    }
    if (!text && data !== undefined) text = typeof data === 'string' ? data : JSON.stringify(data);
    const r = new Result(text, data, structured, content, meta);
    if (!answer.isError) return r;
    let reasons = (meta['waldo/reasons'] || []).map((w) => w.code + ': ' + (w.text || '')).join('; ');
    const kind = { denied: Denied, waiting: Waiting }[meta['waldo/status']] || ToolError;
    if (meta['waldo/confirm']) reasons = text;
    else if (kind === Waiting) reasons = 'waits for the approval of a human, ' + meta['waldo/approval_id'] + '; ' + reasons;
    throw new kind(tool + ': ' + (reasons || text || 'failed'), tool, meta, r);
  }

  // ---- the protocol ----

  const most = 24; // requests at once, and characters of them, below waldo's own limits
  const mostHeld = 4 << 20;
  const open = new Map(); // request id -> [resolve, reject, characters]
  let held = 0;
  const queue = [];
  let socket = null;
  let dead = '';
  let last = 0;
  let parts = [];
  const frames = []; // that were read; the first one was given to its caller in this turn

  function end(why) {
    dead = dead || why;
    for (const [, reject] of open.values()) reject(new ToolError(dead));
    for (const { reject } of queue.splice(0)) reject(new ToolError(dead));
    open.clear();
    if (socket) socket.destroy();
  }

  function connect() {
    if (socket || dead) return;
    try {
      if (!fs.fstatSync(3).isSocket()) throw new Error('no socket');
      socket = new (require('net').Socket)({ fd: 3, readable: true, writable: true });
    } catch {
      end('this run has no tools');
      return;
    }
    socket.on('data', (chunk) => {
      let from = 0;
      for (let at; (at = chunk.indexOf(10, from)) >= 0; from = at + 1) {
        parts.push(chunk.subarray(from, at));
        frames.push(JSON.parse(Buffer.concat(parts).toString()));
        if (frames.length === 1) next();
        parts = [];
      }
      parts.push(chunk.subarray(from));
    });
    socket.on('error', (e) => end('the bridge to waldo is closed: ' + e.message));
    socket.on('close', () => { frames.splice(0).slice(1).forEach(arrive); end('waldo closed the bridge'); });
    socket.unref();
  }

  // next gives one answer to the program, and the next one after what it does then, which so depends on no time.
  function next() {
    arrive(frames[0]);
    setImmediate(() => { if (frames.shift() && frames.length) next(); });
  }

  function arrive(message) {
    const waiting = open.get(message.id);
    if (!waiting) {
      if (message.error) end('waldo closed the bridge: ' + message.error.message);
      return;
    }
    open.delete(message.id);
    held -= waiting[2];
    if (message.error) waiting[1](new ToolError(message.error.message, '', message.error.data));
    else waiting[0](message.result);
    pump();
    if (open.size === 0 && socket) socket.unref(); // an idle bridge keeps no script alive
  }

  // lone finds what JSON.stringify makes of half of a surrogate pair. waldo closes a bridge with such a frame.
  const lone = /(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]/;

  function pump() {
    while (queue.length && open.size < most && !dead) {
      const { method, params, resolve, reject } = queue[0];
      const frame = JSON.stringify({ jsonrpc: '2.0', id: last + 1, method, params }) + '\n';
      if (open.size && held + frame.length > mostHeld) return;
      queue.shift();
      if (lone.test(frame)) {
        reject(new TypeError('an argument holds half of a surrogate pair, which is no text: toWellFormed() replaces it'));
        continue;
      }
      open.set(++last, [resolve, reject, frame.length]);
      held += frame.length;
      socket.ref();
      socket.write(frame);
    }
  }

  function ask(method, params) {
    return new Promise((resolve, reject) => {
      connect();
      if (dead) return reject(new ToolError(dead));
      queue.push({ method, params, resolve, reject });
      pump();
    });
  }

  // ---- tools ----

  const options = Symbol('options');

  function tool(name) {
    async function call(...args) {
      if (typeof args[0] === 'string') args.shift(); // the server's address, which waldo ignores
      if (args.length > 2 || (args[0] !== undefined && args[0] !== null && typeof args[0] !== 'object')) {
        throw new TypeError('a tool takes its arguments as one object');
      }
      const params = { name, arguments: args[0] || {} };
      if (args[1] && args[1].waldo_approval) params['waldo/approval_id'] = args[1].waldo_approval;
      return result(await ask('tools/call', params), name);
    }
    return Object.assign(call, { call, Params: (fields) => ({ ...fields }), toolName: name });
  }

  // The runtime looks these names up on promises and modules: they are not tools.
  const notNames = new Set(['then', 'catch', 'finally', 'toJSON', 'constructor', 'prototype', 'default']);

  const ownName = Symbol('name');

  function named(make, is = '') {
    return new Proxy({}, {
      get: (_, name) => (name === ownName ? is : typeof name !== 'string' || notNames.has(name) ? undefined : make(name)),
    });
  }

  const server = (name) => named((t) => tool(name + '.' + t), name);
  const servers = named(server);

  class ToolRef {
    constructor(found) {
      const at = found.name.lastIndexOf('.');
      this.name = found.name;
      this.server = found.name.slice(0, Math.max(at, 0));
      this.tool = found.name.slice(at + 1);
      this.title = found.title || '';
      this.description = found.description || '';
      this.summary = this.description.split('\n', 1)[0];
      this.input_schema = found.inputSchema;
      this.output_schema = found.outputSchema;
    }
    load() { return tool(this.name); }
    call(...args) { return tool(this.name)(...args); }
  }

  // search_tools finds tools by words of their names and descriptions; detail is name, basic, full.
  async function search_tools(query = '', detail = 'basic', limit = 20) {
    const found = await ask('waldo/search', { query: String(query), detail, limit });
    return found.tools.map((t) => new ToolRef(t));
  }

  const spelled = (name) => name.replace(/[^A-Za-z0-9_.]/g, '_');

  // help returns a text about a tool, the tools of a server, or the servers.
  async function help(x = servers) {
    const all = [];
    for (let cursor; ;) {
      const page = await ask('tools/list', cursor ? { cursor } : {});
      all.push(...page.tools);
      if (!(cursor = page.nextCursor)) break;
    }
    const of = new Map(all.map((t) => [spelled((t._meta || {})['waldo/capability'] || t.name), t]));
    const isTool = typeof x === 'function';
    const name = spelled((isTool ? x.toolName : x[ownName]) || '');
    const t = of.get(name);
    if (t) {
      const { properties = {}, required = [] } = t.inputSchema || {};
      const fields = Object.entries(properties).map(([field, s]) =>
        `  ${field}: ${[].concat(s.enum ? 'one of ' + s.enum.slice(0, 20).join(', ') : s.type || []).join(' or ')}${required.includes(field) ? '' : ', optional'}  ${(s.description || '').replace(/\s+/g, ' ')}`.trimEnd());
      return [name, t.title, t.description, ...fields].filter(Boolean).join('\n');
    }
    const names = [...of.keys()];
    if (name && !isTool) return 'Tools: ' + names.filter((n) => n.startsWith(name + '.')).map((n) => n.slice(name.length + 1)).join(', ');
    if (name) return name + ' is no tool that this program sees';
    return 'Servers: ' + [...new Set(names.filter((n) => n.includes('.')).map((n) => n.split('.')[0]))].join(', ');
  }

  // generated is the module of a tool that waldo gen writes. Here its calls go over the bridge.
  function generated(server, name) {
    const { call } = tool(`${server}.${name}`);
    return { call, TOOL: name, SERVER_URL: 'waldo:' + server, default: call };
  }

  // ---- files ----

  const workspace = {
    root: '/workspace/output',
    input: '/workspace/input',
    path(name = '') {
      name = String(name);
      for (const prefix of [this.root + '/', './', '.workspace/']) {
        if (name.startsWith(prefix)) name = name.slice(prefix.length);
      }
      if (name.startsWith('/') || name.split('/').includes('..')) throw new RangeError(`'${name}' is not below the workspace`);
      return name ? path.join(this.root, name) : this.root;
    },
    // write writes text, bytes, or anything else as JSON, and returns the path.
    write(name, data) {
      const to = this.path(name);
      fs.mkdirSync(path.dirname(to), { recursive: true });
      if (data instanceof Result) data = data._text;
      fs.writeFileSync(to, typeof data === 'string' || ArrayBuffer.isView(data) ? data : JSON.stringify(data, null, 2) + '\n');
      return to;
    },
    read(name, binary = false) {
      let from = this.path(name);
      const other = path.join(this.input, from.slice(this.root.length + 1));
      if (!fs.existsSync(from) && fs.existsSync(other)) from = other;
      return fs.readFileSync(from, binary ? undefined : 'utf8');
    },
    read_json(name) { return JSON.parse(this.read(name)); },
    exists(name) { return fs.existsSync(this.path(name)); },
    list(under = '') {
      const names = [];
      const walk = (dir) => {
        for (const e of fs.readdirSync(dir, { withFileTypes: true })) {
          const at = path.join(dir, e.name);
          if (e.isDirectory()) walk(at);
          else names.push(path.relative(this.root, at));
        }
      };
      walk(this.path(under));
      return names.sort();
    },
  };

  // ---- privacy ----

  // internal/detect/data: begin
  const secretName = /password|passwd|passphrase|passwort|secret|api[_-]?key|access[_-]?key|private[_-]?key|credential|pwd|auth[_-]?token|access[_-]?token|refresh[_-]?token|bearer[_-]?token|client[_-]?secret|signing[_-]?key|encryption[_-]?key|master[_-]?key|connection[_-]?string|token|authorization|pass/i;
  const personal = [
    [/[A-Za-z0-9._%+-]+@(?!v?\d+\.\d|\d+\w?\.(?:png|jpe?g|gif|svg|webp|ico|tar|tgz|gz|xz)\b)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}/g, '[EMAIL]'],
    [/(?<![\w.-])\d(?:(?:  ?|[.+-]|%20)?\d){11,18}(?![\w-])/g, '[CREDIT_CARD]'],
    [/(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])/g, '[SSN]'],
    [/(?<![\w.])(?:\+?\d{1,3}[-. ]?)?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]?\d{4}(?![\w-])/g, '[PHONE]'],
    [/(?<![\w.])\+\d(?:[-. ]?\d){7,13}(?![\w-])/g, '[PHONE]'],
  ];
  const issued = [
    [1800, 1800, 15, 15],
    [2131, 2131, 15, 15],
    [2221, 2720, 16, 16],
    [3000, 3059, 14, 19],
    [3095, 3095, 14, 19],
    [3400, 3499, 15, 15],
    [3500, 3599, 16, 19],
    [3600, 3699, 14, 19],
    [3700, 3799, 15, 15],
    [3800, 3999, 14, 19],
    [4000, 4999, 13, 13],
    [4000, 4999, 16, 16],
    [4000, 4999, 19, 19],
    [5000, 5099, 12, 19],
    [5100, 5599, 16, 16],
    [5600, 5899, 12, 19],
    [6000, 6999, 12, 19],
    [8100, 8199, 16, 19],
  ];
  // internal/detect/data: end
  const secret = new RegExp(`(["']?[\\w-]*(?:${secretName.source})[\\w-]*["']?\\s*[:=]\\s*)(?:(?:bearer|basic)\\s+)?("[^"]*"|'[^']*'|[^\\s,;}\\]\\[&"']+)`, 'gi');
  const patterns = [
    [secret, (_, key, value) => { const q = /["']/.test(value[0]) ? value[0] : ''; return key + q + '[REDACTED]' + q; }],
    ...personal.map(([p, instead]) => [p, instead === '[CREDIT_CARD]' ? (m) => (card(m) ? instead : m) : instead]),
  ];

  // card has the rules of internal/detect: issued prefixes, the groups of a card, the check digit of ISO/IEC 7812.
  function card(m) {
    const plain = m.replace(/%20/g, ' '), groups = plain.split(/\D+/), digits = groups.join('');
    const lead = +digits.slice(0, 4), sizes = groups.map((g) => g.length), seps = new Set(plain.match(/\D+/g));
    if (!issued.some(([a, b, least, most]) => a <= lead && lead <= b && least <= digits.length && digits.length <= most)) return false;
    let total = 0;
    [...digits].reverse().forEach((c, i) => { const d = +c; total += i % 2 === 0 ? d : d > 4 ? d * 2 - 9 : d * 2; });
    const dashed = seps.has('-') && seps.size === 1 && sizes.join() === '4,4,4,4';
    if (!dashed && (total % 10 !== 0 || new Set(digits).size === 1)) return false;
    return groups.length === 1 || seps.size === 1 && sizes.length >= 3 && sizes.length <= 5 && sizes.at(-1) <= 7 &&
      sizes.slice(0, -1).every((s, k) => s === 4 || k === 1 && s >= 5 && s <= 7);
  }

  function scrub(value) {
    if (value instanceof Result) value = value._text;
    if (typeof value === 'string') {
      for (const [pattern, instead] of patterns) value = value.replace(pattern, instead);
      return value;
    }
    if (Array.isArray(value)) return value.map(scrub);
    if (value && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(([k, v]) =>
        [k, secretName.test(k) && ['string', 'number'].includes(typeof v) ? '[REDACTED]' : scrub(v)]));
    }
    return value;
  }

  const say = (level) => (...args) => { fs.writeSync(2, level + ' ' + scrub(require('util').format(...args)) + '\n'); };
  const logger = { debug: say('DEBUG'), info: say('INFO'), warning: say('WARNING'), warn: say('WARNING'), error: say('ERROR'), critical: say('CRITICAL') };

  // run_async takes a promise, or a function that makes one, and returns it.
  async function run_async(x) { return typeof x === 'function' ? x() : x; }

  // ---- names ----

  const globals = { servers, search_tools, workspace, logger, scrub, run_async, resultOf, help, ToolError, Denied, Waiting };
  const module = { ...globals, searchTools: search_tools, runAsync: run_async, default: globals };

  // name makes the servers globals, except those that would hide an existing one.
  function name(servers) {
    for (const s of servers) if (!(s in globalThis)) globalThis[s] = globals[s] = server(s);
  }

  // rehearse calls a tool with a local answer, so that the bridge is open and the code is warm before the
  // first call. Without a bridge such a call fails. forget removes the server's name again.
  function rehearse(server) {
    const forget = () => { delete globalThis[server]; delete globals[server]; };
    connect();
    if (dead) return { forget, end() {} };
    const h = socket._handle;
    h.writeUtf8String = (request) => {
      const result = { content: [{ type: 'text', text: '{"a":1}' }], structuredContent: { a: 1 }, isError: false, _meta: {} };
      setImmediate(() => socket.push(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: last, result }) + '\n')));
      return Object.getPrototypeOf(h).writeUtf8String.call(h, request, '');
    };
    return { forget, end() { delete h.writeUtf8String; } };
  }

  return { rehearse, globals: { ...globals, searchTools: search_tools, runAsync: run_async }, module, name, generated };
})
