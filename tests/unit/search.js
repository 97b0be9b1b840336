// Answers queries as the site's own search does: node search.js WORKER INDEX < '["words", …]' prints a place for each.
const fs = require("fs")
const [worker, index] = process.argv.slice(2)
let ask, answer
Object.assign(globalThis, { self: globalThis, addEventListener: (_, take) => (ask = take), postMessage: m => answer(m) })
require(worker)
const call = data => new Promise(done => ((answer = done), ask({ data })))
async function main() {
  await call({ type: 0, data: { ...JSON.parse(fs.readFileSync(index)), options: { suggest: true } } })
  for (const words of JSON.parse(fs.readFileSync(0))) console.log((await call({ type: 2, data: words })).data.items[0][0].location)
}
main()
