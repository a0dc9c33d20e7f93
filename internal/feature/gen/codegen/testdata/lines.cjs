const path = require('node:path');
const ts = require('typescript');
const root = process.argv[2];
const options = { strict: true, noEmit: true, allowImportingTsExtensions: true, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022, lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'], types: [], skipLibCheck: true, isolatedModules: true };
for (const d of ts.getPreEmitDiagnostics(ts.createProgram(["shapes.ts", "literals.ts"].map((f) => path.join(root, f)), options))) {
  const at = d.file ? `${path.basename(d.file.fileName)}:${d.file.getLineAndCharacterOfPosition(d.start).line + 1}` : '?';
  process.stdout.write(`${at}: ${ts.flattenDiagnosticMessageText(d.messageText, ' ')}\n`);
}
