// Runs one script inside a box. Started as `node -e <this> [typescript]`. On stdin arrives what
// boot.py describes: a flag and a length, the runtime (waldo.js, and for TypeScript a NUL and
// strip.min.js), a byte; two lengths, words, script. What follows on stdin is the script's own.
'use strict';
(() => {
  const fs = require('fs');
  const vm = require('vm');

  function take(n) {
    const b = Buffer.alloc(n);
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

  const [warm, length] = take(14).toString().trim().split(/ +/).map(Number);
  const [own, types] = take(length).toString().split('\0');
  const make = new vm.Script(own, { filename: 'waldo' }).runInThisContext();
  // TypeScript loses its types here, in the box: waldo itself parses no code of an agent.
  const typescript = process.argv[1] === 'typescript';
  let stripper = null;
  const strip = (text) => {
    stripper = stripper || vm.runInThisContext(`(() => { ${types}\nreturn strip; })()`, { filename: 'waldo', displayErrors: false });
    return stripper(text, file);
  };
  let file = 'waldo';

  // What most scripts do, done often enough with nobody listening that V8 has made it quick.
  if (warm === 1) {
    const { Console } = require('console');
    const { Writable } = require('stream');
    const quiet = new Console(new Writable({ write(chunk, encoding, done) { done(); } }));
    for (let i = 0; i < 50; i++) {
      process.stdout.write('');
      process.stderr.write('');
      quiet.log('%s', i, { i, list: [i] });
      new vm.Script(`(async function () { const a = [${i}]; return a.map((x) => x + 1); })`, { filename: 'waldo' }).runInThisContext()();
    }
    if (typescript) strip('const a: number = 1; interface B { c: string }');
    make(require('module').createRequire('/workspace/waldo.js'), []);
  }
  take(1);
  const [words, size] = take(24).toString().trim().split(/ +/).map(Number);
  const [name, servers, ...args] = take(words).toString().split('\0');
  file = name;
  let source = take(size).toString().replace(/^\uFEFF/, '');
  process.argv = [process.argv[0], file, ...args];

  const path = require('path');
  const at = path.resolve('/workspace', file);
  const local = require('module').createRequire(at);
  const waldo = make(local, servers ? servers.split(',') : []);
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

  process.on('uncaughtException', fail);

  // When nothing is left to do, the process ends without taking V8 apart, which takes longer than
  // most scripts.
  process.once('beforeExit', () => process.on('exit', (code) => process.reallyExit(code)));

  async function load(specifier) {
    if (specifier === 'waldo' || specifier === 'mcp_codegen/runtime') return waldo.module;
    if (specifier.startsWith('.') || specifier.startsWith('/')) {
      specifier = require('url').pathToFileURL(path.resolve(path.dirname(at), specifier)).href;
    } else if (!require('module').isBuiltin(specifier)) {
      specifier = require('url').pathToFileURL(local.resolve(specifier)).href;
    }
    return import(specifier);
  }

  // A script with import or export statements is a module; any other is the body of an async
  // function, where require and await both work.
  // asModule is null where the words of a module only stood in a string or a comment.
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

  async function run(module) {
    await module.link(async (specifier) => {
      const found = await load(specifier);
      const names = Object.keys(found);
      return new vm.SyntheticModule(names, function () {
        for (const n of names) this.setExport(n, found[n]);
      });
    });
    await module.evaluate();
  }

  function asFunction() {
    const head = '(async function (require, module, exports, __filename, __dirname) {';
    const options = { filename: file, columnOffset: -head.length, importModuleDynamically: load };
    return new vm.Script(head + source + '\n})', options).runInThisContext();
  }

  const statement = /^\s*(import\s*[\w{*'"]|export\s+(default|const|let|var|function|class|async)\b|export\s*[{*])|\bimport\.meta\b/m;

  (async () => {
    if (typescript) source = strip(source);
    if (statement.test(source)) {
      const module = asModule();
      if (module) return run(module);
    }
    const module = { exports: {} };
    await asFunction()(local, module, module.exports, at, path.dirname(at));
  })().catch(fail);
})();
