// Call a tool by the TypeScript SDK and print what it answers, its object checked: node results.mjs URL TOKEN TOOL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token, tool] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}` };
const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
// From here on it checks an object against the schema that its tool publishes.
await client.listTools();
const { content, structuredContent, isError } = await client.callTool({ name: tool, arguments: {} });
console.log(JSON.stringify({ content, structuredContent, isError }));
await client.close();
