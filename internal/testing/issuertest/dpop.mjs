// An authorization server that demands proofs of possession: MODULES PORT PUBLIC_JWK
import { pathToFileURL } from 'node:url';

const [modules, port, jwk] = process.argv.slice(1);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'machine', token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: [JSON.parse(jwk)] },
    grant_types: ['client_credentials'], redirect_uris: [], response_types: [], dpop_bound_access_tokens: true,
  }],
  clientAuthMethods: ['private_key_jwt'],
  scopes: ['openid', 'offline_access', 'read'],
  issueRefreshToken: async () => true,
  ttl: { AccessToken: 20, ClientCredentials: 20 },
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 7), requireNonce: () => true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: async (ctx, resource) => ({ scope: 'read', audience: resource, accessTokenFormat: 'jwt' }),
      useGrantedResource: async () => true,
    },
  },
});
provider.on('server_error', (ctx, err) => console.error(err));
for (const e of ['grant.error', 'authorization.error', 'registration_create.error']) {
  provider.on(e, (ctx, err) => console.error(e, err.error, err.error_description, err.error_detail));
}
provider.listen(Number(port), '127.0.0.1', () => console.log('listening'));
