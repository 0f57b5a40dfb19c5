// Runs parts of Python, one after the other, in MicroPython for WebAssembly: `node webassembly.mjs JOB`.
//
// JOB is a JSON file: {module, heap, folders: {path inside: path here}, parts: [source, ...]}.
// Garbage is collected between two parts and never within one: only there no references lie on the
// stack, which WebAssembly does not let a collector see.

import fs from 'fs';
import path from 'path';
import { pathToFileURL } from 'url';

const job = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const { loadMicroPython } = await import(pathToFileURL(job.module).href);
const python = await loadMicroPython({
  heapsize: job.heap,
  stdout: (line) => console.log(line),
  linebuffer: true,
});

function copy(from, to) {
  python.FS.mkdirTree(to);
  for (const entry of fs.readdirSync(from, { withFileTypes: true })) {
    const source = path.join(from, entry.name);
    const target = `${to}/${entry.name}`;
    if (entry.isDirectory()) copy(source, target);
    else python.FS.writeFile(target, fs.readFileSync(source));
  }
}

for (const [inside, here] of Object.entries(job.folders)) copy(here, inside);
try {
  for (const part of job.parts) python.runPython(part);
} catch (error) {
  console.error(String(error.message).trim());
  process.exit(1);
}
