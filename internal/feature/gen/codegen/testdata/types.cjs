// Checks the types of generated modules with TypeScript's own compiler. Argument: the folder.
const fs = require('node:fs');
const path = require('node:path');
const ts = require('typescript');

const files = fs.readdirSync(process.argv[2], { recursive: true }).filter((f) => f.endsWith('.ts')).map((f) => path.join(process.argv[2], f));
const options = { strict: true, noEmit: true, allowImportingTsExtensions: true, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022, lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'], types: [], skipLibCheck: true, isolatedModules: true };
const found = ts.getPreEmitDiagnostics(ts.createProgram(files, options));
const faults = found.map((d) => `${d.file ? d.file.fileName : ''}:${d.start} ${ts.flattenDiagnosticMessageText(d.messageText, ' ')}`);
process.stdout.write(JSON.stringify({ files: files.length, faults: faults.slice(0, 20) }));
