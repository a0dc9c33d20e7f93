// An OpenID provider: MODULES PORT "REDIRECT-ADDRESS". It obeys lines at its standard input.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { generateKeyPairSync } from 'node:crypto';
import { pathToFileURL } from 'node:url';

console.info = console.error; // its notices are no answers
const [modules, port, about] = process.argv.slice(1);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
const redirect = JSON.parse(about);
const groups = { ann: ['staff'], bea: ['staff', 'leads'] };
const client_secret = 'hush env:S';
const page = { client_secret, redirect_uris: [redirect], grant_types: ['authorization_code'], response_types: ['code'] };
let keys = 0, withheld = false, jwks, handler;

function rotate() {
  keys++;
  jwks = { keys: [['rsa', { modulusLength: 2048 }, 'RS256'], ['ec', { namedCurve: 'P-256' }, 'ES256']].map(([kind, options, alg]) => ({
    ...generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' }), kid: `${alg}-${keys}`, alg, use: 'sig',
  })) };
}

// The storage of oidc-provider is the module's own, so a new provider knows the sessions and codes of the one before.
function start() {
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
      ...(redirect ? [{ ...page, client_id: 'waldo' }, { ...page, client_id: 'other' },
        { ...page, client_id: 'page', client_secret: undefined, token_endpoint_auth_method: 'none' }] : []),
      { client_id: 'robot', client_secret, grant_types: ['client_credentials'], redirect_uris: [], response_types: [] },
    ],
    jwks,
    scopes: ['openid', 'mcp'],
    claims: { openid: ['sub'], groups: ['groups'] },
    conformIdTokenClaims: withheld,
    findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id, groups: groups[id] ?? [] }) }),
    pkce: { required: () => true },
    ttl: { IdToken: 3600, ClientCredentials: 600 },
    features: {
      devInteractions: { enabled: true },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: async (ctx, resource) => ({
          scope: 'mcp other', audience: resource, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } },
        }),
      },
    },
  });
  provider.on('server_error', (ctx, err) => console.error(err));
  for (const e of ['grant.error', 'authorization.error']) {
    provider.on(e, (ctx, err) => console.error(e, err.error, err.error_description, err.error_detail));
  }
  handler = provider.callback();
}

rotate();
start();
createServer((q, s) => handler(q, s)).listen(Number(port), '127.0.0.1', () => console.log('listening'));
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, value] = line.split(' ');
  if (verb === 'rotate') rotate();
  if (verb === 'withhold') withheld = value === 'true';
  start();
  console.log('done');
}
