// The rest of what a script finds on the level engine: console, timers, process, modules, and what waldo.js requires
// of Node. waldo does not trust any of it. The value of this file is a function: Go calls it with what happens.
(function (waldoRuntime) {
  'use strict';
  const call = globalThis.host;
  delete globalThis.host;

  // ask calls the host. A text that begins with "!" is an error.
  function ask(name, ...args) {
    const r = call(name, ...args);
    if (typeof r === 'string' && r[0] === '!') throw Object.assign(new Error(r.slice(1)), { code: r.slice(1).split(':')[0] });
    return r;
  }

  const define = (o, names) => {
    for (const [k, value] of Object.entries(names)) Object.defineProperty(o, k, { value, writable: true, configurable: true });
    return o;
  };

  // ---- bytes ----

  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return new Uint8Array(ask('bytes', String(text))); }
  }

  const bufferOf = (b) => (b instanceof ArrayBuffer ? b : b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength));

  class TextDecoder {
    get encoding() { return 'utf-8'; }
    decode(b) { return b === undefined ? '' : ask('text', bufferOf(b)).slice(1); }
  }

  // ---- inspect: values as Node shows them ----

  const custom = Symbol.for('nodejs.util.inspect.custom');
  const quote = (s) => {
    const mark = !s.includes("'") ? "'" : !s.includes('"') ? '"' : !s.includes('`') ? '`' : "'";
    const escaped = s.replace(/[\\\n\r\t\x00-\x1f]/g, (c) => ({ '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' })[c] || '\\x' + c.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase());
    return mark + (mark === "'" ? escaped.replace(/'/g, "\\'") : escaped) + mark;
  };
  const keyed = (k) => (typeof k === 'symbol' ? `[${k.toString()}]` : /^[A-Za-z_$][\w$]*$/.test(k) ? k : quote(k));
  const mostShown = 100;

  function inspect(value, options) {
    const most = options && options.depth !== undefined ? (options.depth === null ? Infinity : options.depth) : 2;
    const seen = [];
    function show(v, depth, indent) {
      switch (typeof v) {
        case 'string': return depth === 0 && options && options.bare ? v : quote(v);
        case 'bigint': return v + 'n';
        case 'symbol': return v.toString();
        case 'number': return Object.is(v, -0) ? '-0' : String(v);
        case 'function': {
          const kind = /^class\b/.test(Function.prototype.toString.call(v)) ? 'class' : v.constructor && v.constructor.name || 'Function';
          const name = kind === 'class' ? `[class ${v.name || '(anonymous)'}]` : `[${kind}${v.name ? ': ' + v.name : ' (anonymous)'}]`;
          return Object.keys(v).length ? list(v, Object.keys(v), name + ' {', '}', depth, indent) : name;
        }
      }
      if (v === null || typeof v !== 'object') return String(v);
      if (typeof v[custom] === 'function') {
        const own = v[custom](most - depth, options || {}, inspect);
        if (own !== v) return typeof own === 'string' ? own : show(own, depth, indent);
      }
      if (seen.includes(v)) return '[Circular *1]';
      if (v instanceof Error) return stackOf(v) + extra(v, depth, indent);
      if (v instanceof Date) return Number.isNaN(v.getTime()) ? 'Invalid Date' : v.toISOString();
      if (v instanceof RegExp) return String(v);
      const name = v.constructor && v.constructor.name || '';
      if (depth > most && Object.keys(v).length) return Array.isArray(v) ? '[Array]' : `[${name || 'Object: null prototype'}]`;
      seen.push(v);
      try {
        if (Array.isArray(v)) return list(v, null, (name === 'Array' ? '' : `${name}(${v.length}) `) + '[', ']', depth, indent);
        if (ArrayBuffer.isView(v) && !(v instanceof DataView)) return list(v, null, `${name}(${v.length}) [`, ']', depth, indent);
        if (v instanceof Map) return parts([...v].map(([k, x]) => show(k, depth + 1, indent + 2) + ' => ' + show(x, depth + 1, indent + 2)), `Map(${v.size}) {`, '}', indent);
        if (v instanceof Set) return parts([...v].map((x) => show(x, depth + 1, indent + 2)), `Set(${v.size}) {`, '}', indent);
        if (v instanceof Promise) return 'Promise { <pending> }';
        const head = name === 'Object' ? '{' : name ? name + ' {' : '[Object: null prototype] {';
        return list(v, Object.keys(v), head, '}', depth, indent);
      } finally {
        seen.pop();
      }
    }
    function extra(v, depth, indent) {
      const keys = Object.keys(v);
      return keys.length ? ' ' + list(v, keys, '{', '}', depth, indent) : '';
    }
    function list(v, keys, open, close, depth, indent) {
      const items = [];
      if (keys === null) {
        for (let i = 0; i < Math.min(v.length, mostShown); i++) items.push(i in v ? show(v[i], depth + 1, indent + 2) : '<empty item>');
        if (v.length > mostShown) items.push(`... ${v.length - mostShown} more item${v.length > mostShown + 1 ? 's' : ''}`);
      } else {
        for (const k of keys) {
          const d = Object.getOwnPropertyDescriptor(v, k) || { value: v[k] };
          items.push(keyed(k) + ': ' + (d.get ? (d.set ? '[Getter/Setter]' : '[Getter]') : show(d.value, depth + 1, indent + 2)));
        }
      }
      return parts(items, open, close, indent);
    }
    function parts(items, open, close, indent) {
      if (!items.length) return open + close;
      const one = `${open} ${items.join(', ')} ${close}`;
      if (one.length + indent <= 76 && !one.includes('\n')) return one;
      const pad = '\n' + ' '.repeat(indent + 2);
      return open + pad + items.join(',' + pad) + '\n' + ' '.repeat(indent) + close;
    }
    return show(value, 0, 0);
  }

  // stackOf is an error with the lines of the script alone.
  function stackOf(e) {
    const head = `${e.name === undefined ? 'Error' : e.name}${e.message ? ': ' + e.message : ''}`;
    const lines = String(e.stack || '').split('\n').filter((l) => l && !/\((waldo[^)]*|native)\)|at waldo\b|<anonymous> \(waldo/.test(l));
    const first = process.argv[1] + ':1:';
    const own = lines.map((l) => {
      const [before, column] = l.split(first);
      return column === undefined || parseInt(column) <= offset ? l : before + first + (parseInt(column) - offset) + column.replace(/^\d+/, '');
    });
    return own.length ? head + '\n' + own.join('\n') : head;
  }

  function format(...args) {
    let at = 0;
    let text = '';
    if (typeof args[0] === 'string') {
      at = 1;
      text = args[0].replace(/%[sdifjoOc%]/g, (m) => {
        if (m === '%%') return '%';
        if (at >= args.length) return m;
        const v = args[at++];
        switch (m) {
          case '%s': return typeof v === 'object' && v !== null ? inspect(v, { depth: 0 }) : typeof v === 'bigint' ? v + 'n' : String(v);
          case '%d': return typeof v === 'bigint' ? v + 'n' : String(Number(v));
          case '%i': return String(parseInt(v, 10));
          case '%f': return String(parseFloat(v));
          case '%j': return JSON.stringify(v);
          case '%c': return '';
        }
        return inspect(v, { depth: 4 });
      });
      if (at < args.length) text += ' ';
    }
    return text + args.slice(at).map((a) => inspect(a, { bare: true })).join(' ');
  }

  // ---- console ----

  let group = '';
  const line = (stream) => (...args) => {
    let text = format(...args);
    if (group) text = group + text.replaceAll('\n', '\n' + group);
    ask('write', stream, text + '\n');
  };
  const [log, warn] = [line('1'), line('2')];
  const counts = {};
  const times = {};
  const console = {
    log, info: log, debug: log, warn, error: warn,
    trace: (...a) => warn('Trace:', ...a),
    dir: (v, o) => ask('write', '1', inspect(v, o) + '\n'),
    assert: (ok, ...a) => { if (!ok) warn('Assertion failed' + (a.length ? ':' : ''), ...a); },
    group: (...a) => { if (a.length) log(...a); group += '  '; },
    groupEnd: () => { group = group.slice(2); },
    count: (k = 'default') => log(`${k}: ${counts[k] = (counts[k] || 0) + 1}`),
    time: (k = 'default') => { times[k] = performance.now(); },
    timeEnd: (k = 'default') => log(`${k}: ${(performance.now() - times[k]).toFixed(3)}ms`),
    table: (v) => log(v),
  };

  // ---- timers ----

  let timers = []; // by the time at which they are due
  let lastTimer = 0;
  const now = () => Date.now();

  function timer(f, ms, args, every) {
    if (typeof f !== 'function') throw new TypeError('a timer takes a function');
    ms = Math.min(Math.max(Number(ms) || 0, 0), 2 ** 31 - 1);
    const t = { id: ++lastTimer, due: now() + ms, f, args, every: every ? Math.max(ms, 1) : 0, [Symbol.toPrimitive]() { return this.id; }, ref() { return this; }, unref() { return this; } };
    insert(t);
    return t;
  }

  function insert(t) {
    let at = timers.length;
    while (at > 0 && timers[at - 1].due > t.due) at--;
    timers.splice(at, 0, t);
  }

  const clear = (t) => { const id = Number(t); timers = timers.filter((x) => x.id !== id); };

  // ---- files: the folders of the workspace ----

  const bytesOf = (data) => (data instanceof ArrayBuffer || ArrayBuffer.isView(data) ? bufferOf(data) : String(data));
  const coded = (options) => typeof options === 'string' || (options && options.encoding);
  const fs = {
    readFileSync(path, options) {
      const b = path === 0 || path === '/dev/stdin' ? ask('stdin') : ask('read', String(path));
      return coded(options) ? new TextDecoder().decode(b) : new Uint8Array(b);
    },
    writeFileSync(path, data, options) { ask('file', String(path), bytesOf(data), options && options.flag === 'a' ? 'a' : ''); },
    appendFileSync(path, data) { ask('file', String(path), bytesOf(data), 'a'); },
    mkdirSync(path) { ask('mkdir', String(path)); },
    existsSync(path) { return ask('stat', String(path)) !== ''; },
    unlinkSync(path) { ask('remove', String(path)); },
    readdirSync(path, options) {
      const all = JSON.parse(ask('list', String(path)).slice(1));
      return options && options.withFileTypes ? all.map(([name, dir]) => ({ name, isDirectory: () => dir, isFile: () => !dir })) : all.map(([name]) => name);
    },
    fstatSync() { return { isSocket: () => ask('bridge') === 'open' }; },
    writeSync(fd, text) { ask('write', fd === 2 ? '2' : '1', bytesOf(text)); return text.length; },
  };

  const normal = (p) => {
    const out = [];
    for (const part of p.split('/')) {
      if (part === '..') out.pop();
      else if (part && part !== '.') out.push(part);
    }
    return (p[0] === '/' ? '/' : '') + out.join('/') || '.';
  };
  const path = {
    sep: '/',
    join: (...p) => normal(p.filter(Boolean).join('/')),
    normalize: normal,
    resolve: (...p) => normal(p.reduce((a, b) => (String(b)[0] === '/' ? b : a + '/' + b), '/workspace')),
    dirname: (p) => { const at = p.lastIndexOf('/'); return at < 0 ? '.' : at === 0 ? '/' : p.slice(0, at); },
    basename: (p, ext = '') => { p = p.slice(p.lastIndexOf('/') + 1); return ext && p.endsWith(ext) ? p.slice(0, -ext.length) : p; },
    extname: (p) => { const m = /[^/](\.[^./]*)$/.exec(p); return m ? m[1] : ''; },
    isAbsolute: (p) => p[0] === '/',
    relative: (from, to) => {
      const [a, b] = [normal(from).split('/'), normal(to).split('/')];
      while (a.length && a[0] === b[0]) { a.shift(); b.shift(); }
      return [...a.map(() => '..'), ...b].join('/');
    },
  };

  // ---- the bridge: what waldo.js takes for a socket, one frame at a time ----

  class Chunk {
    constructor(text) { this.s = text; }
    indexOf(_, from) { return this.s.indexOf('\n', from); }
    subarray(a, b) { return new Chunk(this.s.slice(a, b)); }
    toString() { return this.s; }
  }
  const Buffer = { concat: (list) => new Chunk(list.map((c) => c.s).join('')), isBuffer: (b) => b instanceof Uint8Array };
  const listeners = {};
  let held = false; // the bridge has open requests
  class Socket {
    on(event, f) { listeners[event] = f; return this; }
    ref() { held = true; return this; }
    unref() { held = false; return this; }
    write(frame) { ask('send', frame); }
    destroy() { held = false; }
  }

  // ---- modules ----

  const util = { inspect, format, isDeep: undefined, promisify: (f) => (...a) => new Promise((done, fail) => f(...a, (e, v) => (e ? fail(e) : done(v)))) };
  inspect.custom = custom;
  const builtin = { fs, path, util, net: { Socket }, timers: {}, process: null };
  let waldo;

  function require(name) {
    const bare = String(name).replace(/^node:/, '');
    if (bare === 'waldo' || bare === 'mcp_codegen/runtime') return waldo.module;
    if (Object.hasOwn(builtin, bare) && builtin[bare]) return builtin[bare];
    throw Object.assign(new Error(`Cannot find module '${name}': the level engine has fs, path, util and waldo, and files of the workspace by import`), { code: 'MODULE_NOT_FOUND' });
  }

  // ---- process ----

  const gone = Symbol('exit');
  const stream = (n) => ({ write: (text) => { ask('write', n, bytesOf(text)); return true; }, isTTY: false, columns: 80 });
  const process = {
    argv: ['waldo', ''], env: {}, exitCode: undefined, platform: 'waldo', version: 'v0.0.0', versions: { quickjs: '' }, pid: 1,
    stdout: stream('1'), stderr: stream('2'),
    exit(code) { ask('exit', String((code === undefined ? process.exitCode || 0 : code) & 255)); throw gone; },
    cwd: () => '/workspace', nextTick: (f, ...a) => queueMicrotask(() => f(...a)), uptime: () => performance.now() / 1000,
    hrtime: Object.assign(() => { const ms = performance.now(); return [Math.floor(ms / 1000), Math.floor((ms % 1000) * 1e6)]; }, { bigint: () => BigInt(Math.floor(performance.now() * 1e6)) }),
    memoryUsage: () => ({}), on() { return process; }, once() { return process; }, off() { return process; }, emitWarning: (w) => warn(String(w)),
  };
  builtin.process = process;
  builtin.timers = { setTimeout: (f, ms, ...a) => timer(f, ms, a) };

  define(globalThis, {
    console, process, TextEncoder, TextDecoder,
    setTimeout: (f, ms, ...a) => timer(f, ms, a), setInterval: (f, ms, ...a) => timer(f, ms, a, true), setImmediate: (f, ...a) => timer(f, 0, a),
    clearTimeout: clear, clearInterval: clear, clearImmediate: clear,
    structuredClone: (v) => (v === undefined ? undefined : JSON.parse(JSON.stringify(v))),
    global: globalThis,
  });

  // Every program starts from one image, so the engine's own generator would give all of them the same numbers.
  let dice = [];
  Math.random = function random() {
    if (!dice.length) {
      const words = new Uint32Array(ask('random'));
      for (let i = 0; i + 1 < words.length; i += 2) dice.push((words[i] * 2 ** 21 + (words[i + 1] >>> 11)) / 2 ** 53);
    }
    return dice.pop();
  };

  waldo = waldoRuntime(Buffer)(require);
  Object.assign(globalThis, waldo.globals);
  Object.defineProperty(globalThis, Symbol.for('waldo.modules'), { value: (n) => (n === 'waldo' ? waldo.module : builtin[n]) });

  // ---- the program ----

  let state = 'ready'; // running, done
  let code = 0;
  let offset = 0; // columns before the first line of the script

  function fail(e) {
    if (e === gone) return;
    if (e instanceof Error && e.name === 'InternalError' && e.message === 'Invalid error message') {
      e.message = 'out of memory'; // QuickJS had none for the words either
    }
    code = 1;
    state = 'done';
    timers = [];
    held = false;
    ask('write', '2', (e instanceof Error ? stackOf(e) : 'Uncaught ' + inspect(e)) + '\n');
    ask('fail', e instanceof Error ? String(e.name) + ': ' + String(e.message) : '');
  }

  // begin takes the script as a function. It is a global until the script calls it.
  function begin(script) {
    delete globalThis.__waldo;
    state = 'running';
    const module = { exports: {} };
    const file = process.argv[1];
    Promise.resolve().then(() => script(require, module, module.exports, path.resolve(file), path.dirname(path.resolve(file))))
      .then(() => { state = 'done'; }, fail);
  }

  return function (what, a, b) {
    switch (what) {
      case 'job': {
        const job = JSON.parse(a);
        process.argv = ['waldo', job.name, ...job.args];
        process.env = job.env || {};
        offset = job.offset;
        if (job.servers.length) waldo.name(job.servers);
        Object.defineProperty(globalThis, '__waldo', { value: begin, configurable: true });
        return;
      }
      case 'frame': listeners.data(new Chunk(a + '\n')); return;
      case 'closed': if (listeners.close) listeners.close(); return;
      case 'fail': fail(Object.assign(new Error(b), { name: a, stack: '' })); return;
      case 'tick': {
        const t = timers[0];
        if (!t || t.due > now()) return;
        timers.shift();
        if (t.every) { t.due = now() + t.every; insert(t); }
        try { t.f(...t.args); } catch (e) { fail(e); }
        return;
      }
      // state, milliseconds to the next timer (-1: none), whether requests are open, exit code
      case 'state':
        return `${state} ${timers.length ? Math.max(0, timers[0].due - now()) : -1} ${held ? 1 : 0} ${process.exitCode === undefined || code ? code : process.exitCode & 255}`;
    }
  };
})
