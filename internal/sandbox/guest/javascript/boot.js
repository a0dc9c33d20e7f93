// Runs one script inside a sandbox, as `node -e <this> [typescript]`. Its stdin has the format that boot.py
// describes: a flag and a length, the runtime (waldo.js, and for TypeScript a NUL and strip.min.js), a byte;
// then two lengths, words, script. The rest of stdin is the script's own input.
'use strict';
(() => {
  const fs = require('fs');
  const vm = require('vm');
  const path = require('path');
  const { createRequire, isBuiltin } = require('module');
  const { pathToFileURL } = require('url');

  function take(n) {
    const b = Buffer.allocUnsafe(n);
    for (let at = 0; at < n;) {
      const got = fs.readSync(0, b, at, n - at);
      if (got === 0) {
        process.stderr.write('waldo: the script did not arrive\n');
        process.exit(1);
      }
      at += got;
    }
    return b;
  }

  const warm = take(2)[0] === 49; // '1'
  const [own, types] = take(Number(take(12))).toString().split('\0');
  // TypeScript types are stripped here, in the sandbox: waldo itself never parses code of an agent.
  const typescript = process.argv[1] === 'typescript';
  let stripper = null;
  const strip = (text, file) => {
    stripper = stripper || vm.runInThisContext(`(() => { ${types}\nreturn strip; })()`, { filename: 'waldo', displayErrors: false });
    return stripper(text, file);
  };

  const home = createRequire('/workspace/script.js');
  const waldo = new vm.Script(own, { filename: 'waldo' }).runInThisContext()(home);
  for (const [name, value] of Object.entries(waldo.globals)) globalThis[name] = value;

  // Only the lines of the script are shown, under the name it was given.
  function report(error) {
    if (!(error instanceof Error) && !(error && error.stack)) {
      process.stderr.write('Uncaught ' + require('util').inspect(error) + '\n');
      return;
    }
    const lines = String(error.stack).split('\n');
    const shown = lines.filter((l) => !/^\s+at (.*[( ])?(node:|waldo[: )]|\[eval)/.test(l));
    process.stderr.write(shown.join('\n') + '\n');
  }

  function fail(error) {
    report(error);
    process.exit(1);
  }

  // Node's own exit takes longer than most scripts. If waldo listens, the kernel holds the process in this
  // call, and waldo takes the low byte as its status (seccomp.EndSignal). Otherwise the call is an error.
  const { pid } = process;
  let { reallyExit: exit, _kill: kill } = process;
  process.reallyExit = (code) => {
    kill(pid, 0xf7616c00 | code & 255);
    exit.call(process, code);
  };
  const leave = (code) => process.reallyExit(code);

  // last registers the exit after the handlers that the script has registered for its end.
  function last() {
    process.off('exit', leave);
    process.on('exit', leave);
  }

  // A script with import or export statements is a module; any other is the body of an async
  // function, where require and await both work.
  const statement = /^\s*(import\s*[\w{*'"]|export\s+(default|const|let|var|function|class|async)\b|export\s*[{*])|\bimport\.meta\b/m;

  async function run(file, at, text, local) {
    const source = typescript ? strip(text, file) : text;

    async function load(specifier) {
      if (specifier === 'waldo' || specifier === 'mcp_codegen/runtime') return waldo.module;
      const made = /^(?:\.{1,2}\/)+servers\/([^/]+)\/([^/]+?)(?:\.[jt]s)?$/.exec(specifier);
      if (made && !fs.existsSync(path.resolve(path.dirname(at), specifier))) return waldo.generated(made[1], made[2]);
      if (specifier.startsWith('.') || specifier.startsWith('/')) {
        specifier = pathToFileURL(path.resolve(path.dirname(at), specifier)).href;
      } else if (!isBuiltin(specifier)) {
        try {
          specifier = pathToFileURL(local.resolve(specifier)).href;
        } catch (error) {
          if (error.code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw error; // a package for import alone
        }
      }
      return import(specifier);
    }

    function asFunction() {
      const head = '(async function (require, module, exports, __filename, __dirname) {';
      const options = { filename: file, columnOffset: -head.length, importModuleDynamically: load };
      return new vm.Script(head + source + '\n})', options).runInThisContext();
    }

    // asModule is null if the module's keywords were only in a string or a comment.
    function asModule() {
      try {
        return new vm.SourceTextModule(source, {
          identifier: file,
          importModuleDynamically: load,
          initializeImportMeta: (meta) => { meta.url = 'file://' + at; meta.filename = at; },
        });
      } catch (error) {
        try { asFunction(); } catch { throw error; }
        return null;
      }
    }

    const m = statement.test(source) ? asModule() : null;
    if (m === null) {
      const module = { exports: {} };
      return asFunction()(local, module, module.exports, at, path.dirname(at));
    }
    await m.link(async (specifier) => {
      const found = await load(specifier);
      const names = Object.keys(found);
      return new vm.SyntheticModule(names, function () {
        for (const n of names) this.setExport(n, found[n]);
      });
    });
    return m.evaluate();
  }

  // job reads and runs a script, from the two lengths on: see boot.py.
  function job(next) {
    const lengths = next(24);
    const words = Number(lengths.latin1Slice(0, 11));
    const all = next(words + Number(lengths.latin1Slice(12)));
    const [file, servers, ...args] = all.utf8Slice(0, words).split('\0');
    const text = all.utf8Slice(words, all.length);
    process.argv = [process.argv[0], file, ...args];
    if (servers) waldo.name(servers.split(','));
    const at = path.resolve('/workspace', file);
    return run(file, at, text[0] === '\uFEFF' ? text.slice(1) : text, path.dirname(at) === '/workspace' ? home : createRequire(at));
  }

  function begin() {
    process.on('uncaughtException', fail);
    process.on('beforeExit', last);
    setImmediate(() => {
      take(1);
      job(take).catch(fail);
    });
  }

  // The rehearsal runs the whole path of a job often enough for V8 to optimise it. Its output does not leave
  // the process.
  const plays = [
    'console.log(1)',
    'const a = [1, 2].map((x) => x + 1); console.log("a %s", a, { a: "b" }, new Map()); await null; process.stdout.write("x")',
    'import { join } from "path"; import * as w from "waldo"; console.log(join("a", typeof w))',
    'console.log(JSON.stringify({ a: [1, "b", null] })); console.error("x"); setTimeout(() => {}, 0)',
    'throw new TypeError("x")',
    'const r = await _.get({ a: 1 }); console.log(r.a, `${r}`, JSON.stringify(r))',
  ];
  const typed = 'interface A { b: string }\nenum E { F }\nclass C<T> { constructor(private x: T) {} }\nconst n: number = 1 as const;\nfunction f(a?: A): void {}\n';

  function rehearse(turns) {
    const { argv } = process;
    const mute = [process.stdout, process.stderr].map((s) => s._handle).filter((h) => h && h.writeUtf8String);
    for (const h of mute) h.writeUtf8String = (request) => Object.getPrototypeOf(h).writeUtf8String.call(h, request, '');
    const tools = waldo.rehearse('_');
    const ways = [kill, exit];
    kill = exit = () => {};
    const play = () => {
      // The last are short: a function that V8 has set out to make quicker is finished in them, and they
      // set out little.
      const text = turns < 3 ? plays[0] : (typescript ? typed : '') + plays[turns % plays.length];
      const parts = [Buffer.from(`${'7'.padStart(11)} ${String(text.length).padStart(11)}\n`), Buffer.from('waldo\0_' + text)];
      job(() => parts.shift()).catch(report);
    };
    const again = () => {
      tools.forget();
      last();
      process.emit('exit', 0);
      process.off('exit', leave);
      if (turns-- > 0) return setImmediate(play);
      process.off('beforeExit', again);
      for (const h of mute) delete h.writeUtf8String;
      for (const s of [process.stdout, process.stderr]) s.removeAllListeners('error'); // Node 18's console leaves one
      tools.end();
      [kill, exit] = ways;
      process.argv = argv;
      settle();
      begin();
    };
    process.on('beforeExit', again);
  }

  // settle collects the young objects, so that the script does not wait for that.
  function settle() {
    const young = () => require('v8').getHeapSpaceStatistics().find((s) => s.space_name === 'new_space').space_used_size;
    for (let now = 0, before = 0; now >= before; now = young()) {
      before = now;
      new Array(5000).fill(0);
    }
  }

  if (warm) rehearse(36);
  else begin();
})();
