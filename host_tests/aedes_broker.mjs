// aedes on loopback: `node aedes_broker.mjs FOLDER`, where FOLDER holds node_modules.
//
// Prints the port once it listens. Ends when its standard input does, so that it never outlives
// the process that started it. A client that publishes to a topic whose last level is
// "forbidden" is disconnected, which is how MQTT 3.1.1 lets a broker refuse a message.

import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const modules = createRequire(join(process.argv[2], 'package.json'))
const { Aedes } = await import(pathToFileURL(modules.resolve('aedes')))

const aedes = await Aedes.createBroker({
  authorizePublish (client, packet, done) {
    done(client && packet.topic.split('/').pop() === 'forbidden' ? new Error('forbidden') : null)
  }
})
for (const event of ['clientError', 'connectionError']) {
  aedes.on(event, (client, error) => console.error(client.id, event, error.message))
}
const server = createServer(aedes.handle)
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('end', () => process.exit()).resume()
