// Tell the owner something through a butler, by the TypeScript SDK: node typescript.mjs CONFIG.json MESSAGE
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [file, message] = process.argv.slice(2);
const [server] = Object.values(JSON.parse(readFileSync(file, "utf8")).mcpServers);
const transport = new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers: server.headers } });
const client = new Client({ name: "typescript", version: "1" });
await client.connect(transport);
const answer = await client.callTool({ name: "notify", arguments: { channel: "telegram", message } });
console.log(JSON.stringify(answer.structuredContent));
await client.close();
