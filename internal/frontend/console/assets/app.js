'use strict';
// The console's one script: passkeys, live lists, keyboard. Pages work without it, but for passkeys.
const $ = (s) => document.querySelector(s);
const csrf = () => { const m = $('meta[name=csrf]'); return m ? m.content : ''; };
const say = (text) => { $('#status').textContent = text; };

async function api(method, path, body) {
  const r = await fetch('/api/v1' + path, { method, credentials: 'same-origin', headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': csrf() }, body: body === undefined ? undefined : JSON.stringify(body) });
  const v = await r.json().catch(() => ({}));
  if (!r.ok) throw new Error((v.detail || r.statusText) + (v.code ? ' (' + v.code + ')' : ''));
  return v;
}

const bytes = (s) => Uint8Array.from(atob(s.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
const text = (b) => btoa(String.fromCharCode(...new Uint8Array(b))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

async function create(options) {
  options.challenge = bytes(options.challenge);
  options.user.id = bytes(options.user.id);
  const c = await navigator.credentials.create({ publicKey: options });
  return { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: {}, response: { clientDataJSON: text(c.response.clientDataJSON), attestationObject: text(c.response.attestationObject) } };
}

async function get(options) {
  options.challenge = bytes(options.challenge);
  options.allowCredentials = options.allowCredentials.map((c) => ({ ...c, id: bytes(c.id) }));
  const c = await navigator.credentials.get({ publicKey: options });
  return { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: {}, response: { clientDataJSON: text(c.response.clientDataJSON), authenticatorData: text(c.response.authenticatorData), signature: text(c.response.signature) } };
}

function login() {
  const form = $('#login');
  if (form && location.hash.length > 1) {
    const [token, next] = location.hash.slice(1).split('~'); // a message's link names its question, too
    $('#token').value = token;
    $('#next').value = next || '';
    history.replaceState(null, '', location.pathname);
    form.submit();
  }
}

function passkey() {
  const form = $('#passkey');
  if (!form) return;
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    try {
      const begun = await api('POST', '/login', { name: $('#name').value.trim() });
      await api('POST', '/login/' + encodeURIComponent(begun.draft), { assertion: await get(begun.options) });
      location.assign('/approvals');
    } catch (err) { say(err.message); }
  });
}

function enrol() {
  const form = $('#enrol');
  if (!form) return;
  if (location.hash.length > 1) {
    $('#secret').value = location.hash.slice(1);
    history.replaceState(null, '', location.pathname);
  }
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    try {
      say('Follow your browser: it makes a passkey.');
      const begun = await api('POST', '/enrolment', { secret: $('#secret').value.trim() });
      const made = await api('POST', '/enrolment/' + encodeURIComponent(begun.draft) + '/register', { credential: await create(begun.options) });
      say('Once more: the new passkey signs the enrolment.');
      await api('POST', '/enrolment/' + encodeURIComponent(made.draft) + '/finish', { assertion: await get(made.options) });
      say('Done here. Confirm at the terminal: ' + made.name);
      form.hidden = true;
    } catch (err) { say(err.message); }
  });
}

function root() {
  const form = $('#root');
  if (!form) return;
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    try {
      const begun = await api('POST', '/enrolment-root', { secret: $('#rootsecret').value.trim() });
      say('The first approver signs: ' + begun.name);
      await api('POST', '/enrolment-root/' + encodeURIComponent(begun.draft) + '/sign', { assertion: await get(begun.options) });
      say('Signed. The terminal goes on: ' + begun.name);
    } catch (err) { say(err.message); }
  });
}

function answer() {
  const form = $('#answer');
  if (!form) return;
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    const verdict = e.submitter ? e.submitter.value : '';
    if (verdict !== 'approve' && verdict !== 'deny') return;
    const at = '/approvals/' + encodeURIComponent(form.dataset.id);
    try {
      say('Your passkey signs: ' + verdict);
      const d = await api('POST', at + '/draft', { verdict, as: $('#as').value, digest: form.dataset.digest, reason: $('#reason').value });
      const assertion = await get(d.options);
      const a = await api('POST', at + '/' + verdict, { draft: d.draft, assertion });
      say('Taken. The question is now: ' + a.state);
      form.hidden = true;
      if ($('#state')) $('#state').textContent = a.state;
    } catch (err) { say(err.message); }
  });
}

function live() {
  const part = $('#live');
  if (!part || !csrf()) return;
  // The first event after a quiet time refreshes at once, more of them once in each interval: a steady stream neither
  // starves the page nor keeps it busy. A page that is not seen waits until it is; the inbox counts in its title.
  const interval = 2000, inbox = part.dataset.live === 'approvals';
  let timer = 0, last = -interval, busy = false, again = false;
  const refresh = () => {
    if (busy || (document.hidden && !inbox)) { again = true; return; }
    if (part.querySelector(':active')) { setTimeout(refresh, 300); return; } // a button is being pressed
    if (!timer) timer = setTimeout(draw, Math.max(100, last + interval - performance.now()));
  };
  const draw = async () => {
    timer = 0;
    busy = true;
    last = performance.now();
    try { await load(); } catch { /* the next event tries again */ } finally { busy = false; }
    if (again) { again = false; refresh(); }
  };
  const load = async () => {
    const r = await fetch(location.href, { credentials: 'same-origin', headers: { Accept: 'text/html' } });
    if (!r.ok) return;
    const page = new DOMParser().parseFromString(await r.text(), 'text/html');
    const fresh = page.querySelector('#live');
    const name = (e) => e && (e.getAttribute('href') || e.getAttribute('formaction'));
    const at = part.contains(document.activeElement) && name(document.activeElement);
    if (fresh && fresh.innerHTML !== part.innerHTML) {
      part.replaceChildren(...fresh.childNodes);
      const same = at && [...part.querySelectorAll('a, button')].find((e) => name(e) === at);
      if (same) same.focus();
    }
    const n = page.querySelector('#count');
    if (n && $('#count')) { $('#count').textContent = n.textContent; if (inbox) document.title = (n.textContent === '0' ? '' : '(' + n.textContent + ') ') + 'Approvals · waldo'; }
  };
  document.addEventListener('visibilitychange', () => { if (!document.hidden && again) { again = false; refresh(); } });
  const kinds = inbox ? ['approvals'] : ['decision', 'outcome', 'console'];
  const events = new EventSource('/api/v1/events?kinds=' + kinds);
  for (const kind of [...kinds, 'reset']) events.addEventListener(kind, refresh);
  let before = false;
  events.addEventListener('open', () => { if (before) refresh(); before = true; }); // events were lost in between
}

function keys() {
  const off = $('#keys');
  if (off) {
    off.checked = localStorage.getItem('keys') !== 'off';
    off.addEventListener('change', () => localStorage.setItem('keys', off.checked ? 'on' : 'off'));
  }
  document.addEventListener('keydown', (e) => {
    if (localStorage.getItem('keys') === 'off' || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    const items = [...document.querySelectorAll('.inbox a, tbody a')];
    const at = items.indexOf(document.activeElement);
    const form = $('#answer');
    switch (e.key) {
      case 'j': if (items.length) items[Math.min(at + 1, items.length - 1)].focus(); break;
      case 'k': if (items.length) items[Math.max(at - 1, 0)].focus(); break;
      case 'a': if (form && !form.hidden) form.requestSubmit(form.querySelector('[value=approve]')); break;
      case 'd': if (form && !form.hidden) form.requestSubmit(form.querySelector('[value=deny]')); break;
      case 'u': location.href = '/approvals'; break;
      case '?': { const k = $('.keys'); if (k) k.scrollIntoView(); break; }
      default: return;
    }
    e.preventDefault();
  });
}

// A chosen file goes into the text field, where it is seen before it is sent.
function file() {
  const from = $('#file');
  if (from) from.addEventListener('change', async () => { if (from.files[0]) $('#text').value = await from.files[0].text(); });
}

addEventListener('hashchange', login); // the link is opened where the page of the login is
login(); passkey(); enrol(); root(); answer(); live(); keys(); file();
