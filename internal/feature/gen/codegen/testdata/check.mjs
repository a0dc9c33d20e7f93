// Strips the types of generated modules, imports and calls them. Arguments: the folder, the manifest, the stripper.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';

const [root, manifest, stripper] = process.argv.slice(2);
const strip = new Function(fs.readFileSync(stripper, 'utf8') + '\nreturn strip')();
const faults = [];
const made = [];
const loaded = new Map();
let files = 0;

globalThis.search_tools = () => {};
globalThis.servers = new Proxy({}, { get: (_, s) => new Proxy({}, { get: (_, t) => async (params) => { made.push([s, t, params]); } }) });

function load(file) {
  if (!loaded.has(file)) {
    files++;
    loaded.set(file, new vm.SourceTextModule(strip(fs.readFileSync(file, 'utf8'), file), { identifier: file }));
  }
  return loaded.get(file);
}
const link = (specifier, from) => load(path.resolve(path.dirname(from.identifier), specifier));

for (const s of JSON.parse(fs.readFileSync(manifest, 'utf8'))) {
  try {
    const index = load(path.join(root, 'servers', s.folder, 'index.ts'));
    await index.link(link);
    await index.evaluate();
    if (index.namespace.TOOLS.size !== s.calls.length) faults.push(`${s.folder}: the index lists other tools`);
    for (const c of s.calls) {
      const module = index.namespace[index.namespace.TOOLS.get(c.tool)];
      made.length = 0;
      await module.call('', c.args);
      if (JSON.stringify(made) !== JSON.stringify([[s.server, c.tool, c.args]]) || !module.DESCRIPTION.trim()) {
        faults.push(`${JSON.stringify(c)}: called ${JSON.stringify(made)}`);
      }
    }
  } catch (e) {
    faults.push(`${s.folder}: ${e.stack}`);
  }
}
process.stdout.write(JSON.stringify({ files, faults: faults.slice(0, 20) }));
process.exit(0);
