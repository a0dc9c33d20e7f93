'use strict';
// The console's one script: passkeys, live lists, keyboard. Pages work without it, but for passkeys.
const $ = (s) => document.querySelector(s);
const csrf = () => { const m = $('meta[name=csrf]'); return m ? m.content : ''; };
const say = (text) => { $('#status').textContent = text; };

async function api(method, path, body) {
  const r = await fetch('/api/v1' + path, { method, credentials: 'same-origin', headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': csrf() }, body: body === undefined ? undefined : JSON.stringify(body) });
  const v = await r.json().catch(() => ({}));
  if (!r.ok) throw Object.assign(new Error((v.detail || r.statusText) + (v.code ? ' (' + v.code + ')' : '')), { code: v.code });
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
      location.assign('/');
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

// A form whose question has changed stays dead until the page is loaded again.
let dead = false;
function kill() {
  dead = true;
  $('#dead').hidden = false;
  for (const e of $('#answer').elements) e.disabled = true;
}

// The page of a question is never drawn anew in part: its passkey signs what it was loaded with. Its state alone is live.
function standing() {
  const form = $('#answer'), state = $('#state');
  if (!state || !csrf()) return;
  follow(['approvals'], () => true, async () => {
    const r = await fetch(location.pathname + '/state', { credentials: 'same-origin' });
    if (!r.ok && r.status !== 404) return;
    const [words, digest] = r.ok ? (await r.text()).split('\n') : ['gone', ''];
    if (form && digest !== $('#digest').textContent) return kill();
    state.textContent = words;
    if (form && !words.startsWith('pending')) form.hidden = true;
  });
}

// The rows of held calls whose box is ticked.
function struck() { return [...document.querySelectorAll('input[name=struck]:checked')].map((e) => Number(e.value)); }

function answer() {
  const form = $('#answer');
  if (!form) return;
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    const verdict = e.submitter ? e.submitter.value : '';
    if (dead || (verdict !== 'approve' && verdict !== 'deny')) return;
    const at = '/approvals/' + encodeURIComponent(form.dataset.id);
    try {
      say('Your passkey signs: ' + verdict);
      const d = await api('POST', at + '/draft', { verdict, as: $('#as').value, digest: $('#digest').textContent, reason: $('#reason').value, ...($('#word') && { word: $('#word').value.trim() }), ...(verdict === 'approve' && { struck: struck() }) });
      const assertion = await get(d.options);
      if (dead) return;
      const a = await api('POST', at + '/' + verdict, { draft: d.draft, assertion });
      say('Taken. The question is now: ' + a.state);
      form.hidden = true;
      $('#state').textContent = a.state;
    } catch (err) {
      if (err.code === 'approval.changed') kill();
      say(err.message);
    }
  });
}

// Times come in UTC. The reader sees their own zone, and UTC on pointing.
function local(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const at = new Date(t.dateTime), today = at.toDateString() === new Date().toDateString();
    t.textContent = at.toLocaleString('en-GB', { ...(!today && { day: 'numeric', month: 'short' }), hour: '2-digit', minute: '2-digit', ...(today && { second: '2-digit' }) });
  }
}

// badge shows how many questions wait, beside each link to them and in the title.
function badge(open) {
  for (const e of document.querySelectorAll('.badge')) { e.hidden = !open; e.querySelector('.open').textContent = open; }
  if ($('#count') && $('.inbox, .empty') && location.pathname === '/approvals') $('#count').textContent = open;
  document.title = (open ? '(' + open + ') ' : '') + document.title.replace(/^\(\d+\) /, '');
}

// follow loads when there are events of some kinds. The first event after a quiet time loads at once, more of them once in
// each interval: a steady stream neither starves the page nor keeps it busy. A page that is not seen waits until it is,
// except where it always loads.
const followed = [];
function follow(kinds, always, load, pressed = () => false) {
  const interval = 2000;
  let timer = 0, last = -interval, busy = false, again = false;
  const refresh = () => {
    if (busy || (document.hidden && !always())) { again = true; return; }
    if (pressed()) { setTimeout(refresh, 300); return; }
    if (!timer) timer = setTimeout(draw, Math.max(100, last + interval - performance.now()));
  };
  const draw = async () => {
    timer = 0;
    busy = true;
    last = performance.now();
    try { await load(); } catch { /* the next event tries again */ } finally { busy = false; }
    if (again) { again = false; refresh(); }
  };
  document.addEventListener('visibilitychange', () => { if (!document.hidden && again) { again = false; refresh(); } });
  followed.push([kinds, refresh]);
}

// events opens the one stream of a page.
function events() {
  if (!csrf()) return;
  const kinds = [...new Set(['approvals', ...followed.flatMap(([k]) => k)])];
  const stream = new EventSource('/api/v1/events?kinds=' + kinds);
  stream.addEventListener('approvals', (e) => badge(JSON.parse(e.data).open));
  for (const [of, refresh] of followed) for (const kind of [...of, 'reset']) stream.addEventListener(kind, refresh);
  // What came after the page was made, or while the stream was broken, was no event of it.
  stream.addEventListener('open', () => { for (const [, refresh] of followed) refresh(); });
}

function live() {
  const part = $('#live');
  if (!part || !csrf()) return;
  const load = async () => {
    const r = await fetch(location.href, { credentials: 'same-origin', headers: { Accept: 'text/html' } });
    if (!r.ok) return;
    const page = new DOMParser().parseFromString(await r.text(), 'text/html');
    const fresh = page.querySelector('#live');
    const name = (e) => e && (e.getAttribute('href') || e.getAttribute('formaction') || e.getAttribute('popovertarget'));
    const at = part.contains(document.activeElement) && name(document.activeElement);
    if (fresh) local(fresh);
    if (fresh && fresh.innerHTML !== part.innerHTML) {
      part.replaceChildren(...fresh.childNodes);
      const same = at && [...part.querySelectorAll('a, button')].find((e) => name(e) === at);
      if (same) same.focus();
    }
    const n = page.querySelector('#count');
    if (n && $('#count')) $('#count').textContent = n.textContent;
    const open = page.querySelector('.badge .open');
    if (open) badge(Number(open.textContent));
  };
  const pressed = () => part.querySelector(':active, :popover-open'); // a button is being pressed, or a question is asked
  follow(part.dataset.live.split(' '), () => false, load, pressed);
}

function keys() {
  const off = $('#keys');
  if (off) {
    off.checked = localStorage.getItem('keys') !== 'off';
    off.addEventListener('change', () => localStorage.setItem('keys', off.checked ? 'on' : 'off'));
  }
  document.addEventListener('keydown', (e) => {
    if (localStorage.getItem('keys') === 'off' || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    const items = [...document.querySelectorAll('.inbox > li > a, tbody th a')];
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
login(); passkey(); enrol(); root(); answer(); standing(); live(); events(); keys(); file(); local(document);
