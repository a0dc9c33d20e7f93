package a2a

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/protocol/strictjson"
)

// as is a bench whose requests bear another token.
func (b *bench) as(token string) *bench {
	other := *b
	other.token = token
	return &other
}

// two returns a bench and the token of bob, another principal.
func two(t *testing.T, extra string) (b *bench, bob string) {
	bob, hash := identity.NewToken()
	b = newBench(t, extra)
	b.stop()
	text, err := os.ReadFile(b.file())
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), `bob: "`) + len(`bob: "`)
	end := at + strings.Index(string(text[at:]), `"`)
	if err := os.WriteFile(b.file(), []byte(string(text[:at])+hash+string(text[end:])), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(b.file())
	return b, bob
}

// TestTaskOfAnother: a task does not exist for another principal, by any operation.
func TestTaskOfAnother(t *testing.T) {
	b, bob := two(t, "")
	mine := b.send(message("t.note", "one"))
	theirs := b.as(bob)
	for method, params := range map[string]string{
		"GetTask": `{"id":%q}`, "CancelTask": `{"id":%q}`, "SubscribeToTask": `{"id":%q}`,
		"ListTaskPushNotificationConfigs":  `{"taskId":%q}`,
		"GetTaskPushNotificationConfig":    `{"taskId":%q,"id":"x"}`,
		"DeleteTaskPushNotificationConfig": `{"taskId":%q,"id":"x"}`,
		"CreateTaskPushNotificationConfig": `{"taskId":%q,"url":"https://push.test/"}`,
		"SendMessage":                      `{"message":{"messageId":"x","taskId":%q,"role":"ROLE_USER","parts":[{"text":"x"}]}}`,
	} {
		if _, code := theirs.rpc(method, fmt.Sprintf(params, mine.ID)); code != -32001 {
			t.Errorf("%s of another's task: %d", method, code)
		}
	}
	if resp, body := theirs.do("GET", "/a2a/tasks/"+mine.ID, ""); resp.StatusCode != 404 || !strings.Contains(body,
		"TASK_NOT_FOUND") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for who, want := range map[*bench]int{b: 1, theirs: 0} {
		result, _ := who.rpc("ListTasks", `{}`)
		var l struct {
			Tasks []Task
			Total int `json:"totalSize"`
		}
		if err := json.Unmarshal(result, &l); err != nil || len(l.Tasks) != want || l.Total != want {
			t.Errorf("%d tasks of %d, want %d", len(l.Tasks), l.Total, want)
		}
	}
	if _, code := b.rpc("CancelTask", `{"id":"`+mine.ID+`"}`); code != 0 {
		t.Errorf("control: its owner: %d", code)
	}
	if _, code := b.rpc("CancelTask", `{"id":"`+mine.ID+`"}`); code != -32002 {
		t.Errorf("canceled twice: %d", code)
	}
	if resp, body := b.do("POST", "/a2a/tasks/"+mine.ID+":cancel", "{}"); resp.StatusCode != 409 {
		t.Errorf("canceled twice: %d %s", resp.StatusCode, body)
	}
}

// TestListOfLargeTasks: a page ends where its tasks hold too much, and the next page goes on there.
func TestListOfLargeTasks(t *testing.T) {
	b := newBench(t, "")
	want := []string{b.send(message("t.note", "one")).ID, b.send(message("t.note", "two")).ID}
	err := b.h.Store.Update(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE a2a_tasks SET size = $1`, maxPage-1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for next, n := "", 0; n == 0 || next != "" && n < 3; n++ {
		result, code := b.rpc("ListTasks", fmt.Sprintf(`{"pageToken":%q}`, next))
		var l struct {
			Tasks []Task
			Next  string `json:"nextPageToken"`
		}
		if err := json.Unmarshal(result, &l); err != nil || code != 0 || len(l.Tasks) != 1 {
			t.Fatalf("%d %v %s", code, err, result)
		}
		got, next = append(got, l.Tasks[0].ID), l.Next
	}
	if slices.Sort(got); len(got) != 2 || !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStrict: what is not one strict request of this version is refused, with the error that the specification names.
func TestStrict(t *testing.T) {
	b := newBench(t, `, limits: {tasks_each: 5}`)
	ok := `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`
	for why, row := range map[string]struct {
		body    string
		headers []string
		status  int
		want    string // in the body
	}{
		"control":            {ok, nil, 200, `"tasks"`},
		"with a slash":       {ok, nil, 200, `"tasks"`},
		"an unknown version": {ok, []string{"A2A-Version", "9.9"}, 200, "-32009"},
		"no version":         {ok, []string{"A2A-Version", ""}, 200, "-32009"},
		"another type":       {ok, []string{"Content-Type", "text/plain"}, 200, "-32005"},
		"a name twice":       {`{"jsonrpc":"2.0","id":1,"method":"ListTasks","method":"GetTask"}`, nil, 200, "-32700"},
		"cut off":            {ok[:20], nil, 200, "-32700"},
		"more after it":      {ok + ok, nil, 200, "-32700"},
		"a batch":            {"[" + ok + "]", nil, 200, "-32600"},
		"no id":              {`{"jsonrpc":"2.0","method":"ListTasks"}`, nil, 200, "-32600"},
		"an old method":      {`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}`, nil, 200, "-32601"},
		"bad parameters":     {`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":"x"}}`, nil, 200, "-32602"},
		"a page of 1000": {`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":1000}}`, nil, 200,
			"-32602"},
		"a large body": {`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"x":"` + strings.Repeat("a",
			maxBody) + `"}}`, nil, 413, "-32600"},
		"no token":       {ok, []string{"Authorization", ""}, 401, "token"},
		"a wrong token":  {ok, []string{"Authorization", "Bearer waldo_x"}, 401, ""},
		"another host":   {ok, []string{"Host", "evil.example"}, 403, ""},
		"another origin": {ok, []string{"Origin", "https://evil.example"}, 403, ""},
	} {
		path := "/a2a"
		if why == "with a slash" {
			path += "/"
		}
		resp, body := b.do("POST", path, row.body, row.headers...)
		if resp.StatusCode != row.status || !strings.Contains(body, row.want) {
			t.Errorf("%s: %d %.200s", why, resp.StatusCode, body)
		}
	}
	for path, status := range map[string]int{"/a2a/tasks": 200, "/a2a/tasks/t_x": 404,
		"/a2a/tasks?pageSize=0": 400, "/a2a/x": 404,
		"/a2a/extendedAgentCard": 200, "/a2a/tasks?pageSize=x": 400} {
		if resp, body := b.do("GET", path, ""); resp.StatusCode != status {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for why, row := range map[string]struct {
		body, kind, version string
		status              int
	}{
		"control": {message("t.echo", "x"), "application/a2a+json", "1.0", 200},
		"a file": {`{"message":{"messageId":"f","role":"ROLE_USER","parts":[{"raw":"eA=="}]}}`,
			"application/json", "1.0", 415},
		"another type":       {message("t.echo", "x"), "text/plain", "1.0", 415},
		"an unknown version": {message("t.echo", "x"), "application/json", "9.9", 400},
	} {
		resp, body := b.do("POST", "/a2a/message:send", row.body, "Content-Type", row.kind, "A2A-Version", row.version)
		if resp.StatusCode != row.status || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %s", why, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
	}
	for asked, want := range map[string]string{"": "", Arguments: Arguments, "urn:example:unknown": "",
		"urn:example:unknown, " + Arguments: Arguments} { // §4.6.3: what the agent does not require, it ignores
		resp, body := b.do("GET", "/a2a/tasks", "", "A2A-Extensions", asked)
		if got := resp.Header.Get("A2A-Extensions"); resp.StatusCode != 200 || got != want {
			t.Errorf("extensions %q: %d, in use %q, %s", asked, resp.StatusCode, got, body)
		}
	}
	for path, host := range map[string]string{"/a2a/tasks": "evil.example",
		"/.well-known/agent-card.json": "evil.example"} {
		if resp, _ := b.do("GET", path, "", "Host", host); resp.StatusCode != 403 {
			t.Errorf("%s as %s: %d", path, host, resp.StatusCode)
		}
	}
}

// TestCard: the card is signed and can be cached. It lists what contracts expose, and the extended one what its reader
// can use.
func TestCard(t *testing.T) {
	b := newBench(t, "")
	resp, body := b.do("GET", "/.well-known/agent-card.json", "", "Authorization", "", "A2A-Version", "")
	tag := resp.Header.Get("ETag")
	if resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Cache-Control"), "max-age=") || tag == "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	if again, _ := b.do("GET", "/.well-known/agent-card.json", "", "If-None-Match", tag); again.StatusCode != 304 {
		t.Errorf("by its tag: %d", again.StatusCode)
	}
	_, keys := b.do("GET", "/a2a/jwks.json", "", "Authorization", "")
	if !verified(t, body, keys) {
		t.Error("control: the card is not signed")
	}
	if verified(t, strings.Replace(body, "t.echo", "t.evil", 1), keys) {
		t.Error("a changed card is verified")
	}
	for name, listed := range map[string]bool{"t.echo": true, "t.note": true, "t.hidden": false} {
		if strings.Contains(body, `"`+name+`"`) != listed {
			t.Errorf("%s is listed: %v", name, !listed)
		}
	}
	result, code := b.rpc("GetExtendedAgentCard", `{}`)
	if code != 0 || !strings.Contains(string(result), Arguments) || !verified(t, string(result), keys) {
		t.Errorf("%d %s", code, result)
	}
}

// verified checks the signature of a card, as its reader would.
func verified(t *testing.T, card, keys string) bool {
	t.Helper()
	var c map[string]json.RawMessage
	var sigs []struct{ Protected, Signature string }
	var set struct{ Keys []struct{ X, Y string } }
	if err := json.Unmarshal([]byte(card), &c); err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal(c["signatures"], &sigs) != nil || json.Unmarshal([]byte(keys), &set) != nil || len(sigs) != 1 {
		t.Fatal(card, keys)
	}
	delete(c, "signatures")
	b, _ := json.Marshal(c)
	v, err := strictjson.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	num := func(s string) *big.Int {
		b, _ := base64.RawURLEncoding.DecodeString(s)
		return new(big.Int).SetBytes(b)
	}
	sig, _ := base64.RawURLEncoding.DecodeString(sigs[0].Signature)
	sum := sha256.Sum256([]byte(sigs[0].Protected + "." + base64.RawURLEncoding.EncodeToString(v.Canonical())))
	point := append([]byte{4}, append(num(set.Keys[0].X).FillBytes(make([]byte, 32)),
		num(set.Keys[0].Y).FillBytes(make([]byte, 32))...)...)
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal(err)
	}
	return len(sig) == 64 && ecdsa.Verify(pub, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
}

// TestFlood: a principal has a bounded number of tasks, whose calls leave workers for others. Each messageId makes one.
func TestFlood(t *testing.T) {
	b, bob := two(t, `, limits: {tasks_each: 20, tasks: 30}`)
	now := func(skill string) string {
		return strings.TrimSuffix(message(skill, "x"), "}") + `,"configuration":{"returnImmediately":true}}`
	}
	refused := 0
	for range 200 {
		if _, code := b.rpc("SendMessage", now("t.slow")); code == -32000 {
			refused++
		} else if code != 0 {
			t.Fatal(code)
		}
	}
	if refused != 180 {
		t.Errorf("%d of 200 were refused", refused)
	}
	began := time.Now()
	if done := b.as(bob).send(message("t.echo", "hi")); done.Status.State != Completed ||
		time.Since(began) > 10*time.Second {
		t.Errorf("another principal: %s after %v", done.Status.State, time.Since(began))
	}
	result, _ := b.rpc("ListTasks", `{"status":"TASK_STATE_WORKING"}`)
	var l struct{ Tasks []Task }
	if err := json.Unmarshal(result, &l); err != nil || len(l.Tasks) == 0 || len(l.Tasks) > workersEach {
		t.Errorf("%d calls at a time, %v", len(l.Tasks), err)
	}
	for _, task := range l.Tasks {
		if _, code := b.rpc("CancelTask", `{"id":"`+task.ID+`"}`); code != 0 {
			t.Error(code)
		}
	}
	once := message("t.note", "x")
	first, second := b.as(bob).send(once), b.as(bob).send(once)
	if first.ID != second.ID {
		t.Error("a message that came twice made two tasks")
	}
	if _, code := b.as(bob).rpc("SendMessage", strings.Replace(once, `"text":"x"`, `"text":"y"`, 1)); code != -32602 {
		t.Errorf("another message with its id: %d", code)
	}
}

// TestLimits: the parts of a message, the push configurations of a task and the streams of a principal are bounded. The
// streams of one leave those of another.
func TestLimits(t *testing.T) {
	b, bob := two(t, "")
	b.names.all = []string{"93.184.216.34"}
	asked := b.send(message("t.note", "x"))
	for i := range maxPushes + 1 {
		_, code := b.rpc("CreateTaskPushNotificationConfig",
			fmt.Sprintf(`{"taskId":%q,"id":"p%d","url":"https://push%d.example/"}`, asked.ID, i, i))
		if want := map[bool]int{true: -32000}[i == maxPushes]; code != want {
			t.Errorf("push configuration %d: %d, want %d", i, code, want)
		}
	}
	parts := func(n int) string {
		return fmt.Sprintf(`{"message":{"messageId":"p%d","role":"ROLE_USER","metadata":{"skill":"t.echo"},"parts":[%s]}}`, n,
			strings.TrimSuffix(strings.Repeat(`{"text":"x"},`, n), ","))
	}
	if done := b.send(parts(maxParts)); done.Status.State != Completed {
		t.Errorf("control: %d parts: %s", maxParts, said(done))
	}
	if _, code := b.rpc("SendMessage", parts(maxParts+1)); code != -32602 {
		t.Errorf("%d parts: %d", maxParts+1, code)
	}
	for range maxWaitEach {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", b.url+"/a2a/tasks/"+asked.ID+":subscribe", nil)
		r.Header = http.Header{"A2a-Version": {"1.0"}, "Authorization": {"Bearer " + b.token}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(err, resp)
		}
		defer resp.Body.Close()
	}
	if _, code := b.rpc("SubscribeToTask", `{"id":"`+asked.ID+`"}`); code != -32000 {
		t.Errorf("%d streams: %d", maxWaitEach+1, code)
	}
	if theirs := b.as(bob).send(message("t.echo", "y")); theirs.Status.State != Completed {
		t.Errorf("control: another principal: %s", said(theirs))
	}
}

// TestMessageAgain: a message that comes again after its task made room for others makes no second write, and starts no
// second agent.
func TestMessageAgain(t *testing.T) {
	b, _, model := modelled(t)
	sent := map[string]string{"a call": message("t.note", "x"), "an agent": message("agent:waldo", "t.note")}
	for why, once := range sent {
		first := b.send(once)
		b.answer(true)
		b.until(first.ID, Completed)
		noted, asked := b.noted.Load(), len(model.Asked())
		if err := b.h.Store.Update(t.Context(), func(tx *sql.Tx) error { return drop(tx, `id = $1`, first.ID) }); err != nil {
			t.Fatal(err)
		}
		again := b.send(once)
		if again.ID == first.ID || again.Status.State != Completed || b.noted.Load() != noted || len(model.Asked()) != asked {
			t.Errorf("%s: %s, noted %d times more, the model asked %d times more: %s", why, again.Status.State,
				b.noted.Load()-noted, len(model.Asked())-asked, said(again))
		}
		if other := b.send(strings.Replace(once, `"messageId":"m`, `"messageId":"again`, 1)); other.Status.State != InputRequired {
			t.Errorf("control: %s: another message: %s", why, other.Status.State)
		}
		b.answer(false)
	}
}

// TestStream: a stream begins with the task and ends with its last state; a subscription outlasts the question.
func TestStream(t *testing.T) {
	b := newBench(t, "")
	_, body := b.do("POST", "/a2a/message:stream", message("t.echo", "hi"))
	if !strings.HasPrefix(body, `data: {"task":`) || !strings.Contains(body, "echo hi") ||
		!strings.Contains(body, `"TASK_STATE_COMPLETED"`) {
		t.Errorf("%s", body)
	}
	asked := b.send(message("t.note", "x"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/a2a", strings.NewReader(
		`{"jsonrpc":"2.0","id":"s","method":"SubscribeToTask","params":{"id":"`+asked.ID+`"}}`))
	r.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"},
		"Authorization": {"Bearer " + b.token}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), "TASK_STATE_INPUT_REQUIRED") ||
		!strings.Contains(lines.Text(), `"id":"s"`) {
		t.Fatal(lines.Text())
	}
	b.answer(true)
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if !strings.Contains(rest, "artifactUpdate") || !strings.Contains(rest, "TASK_STATE_COMPLETED") ||
		b.noted.Load() != 1 {
		t.Errorf("%s", rest)
	}
	if _, code := b.rpc("SubscribeToTask", `{"id":"`+asked.ID+`"}`); code != -32004 {
		t.Errorf("of an ended task: %d", code)
	}
}

// TestPush: a receiver gets each change at least once, with its token. One at an address inside is refused when its
// configuration is made, and again at each try.
func TestPush(t *testing.T) {
	b := newBench(t, "")
	var got atomic.Int32
	var last atomic.Value
	down := true
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last.Store(r.Header.Get("Authorization") + " " + r.Header.Get("X-A2A-Notification-Token") + " " + string(body))
		if got.Add(1); down {
			down = false
			w.WriteHeader(503)
		}
	}))
	t.Cleanup(receiver.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(receiver.URL, "http://"), ":")
	asked := b.send(message("t.note", "x"))
	config := func(url string) string {
		return `{"taskId":"` + asked.ID + `","url":"` + url +
			`","token":"tok","authentication":{"scheme":"Bearer","credentials":"cred"}}`
	}
	b.names.all = []string{"127.0.0.1"}
	for why, url := range map[string]string{
		"metadata": "https://169.254.169.254/latest", "loopback": "https://127.0.0.1:" + port + "/",
		"localhost":  "https://localhost/",
		"plain http": "http://example.com/", "a name of loopback": "https://evil.example/", "a file": "file:///etc/passwd",
		"a user": "https://u:p@example.com/", "IPv6 of IPv4": "https://[::ffff:169.254.169.254]/",
	} {
		if _, code := b.rpc("CreateTaskPushNotificationConfig", config(url)); code != -32602 {
			t.Errorf("%s: %d", why, code)
		}
	}
	b.inside = "127.0.0.1"
	result, code := b.rpc("CreateTaskPushNotificationConfig", config("http://127.0.0.1:"+port+"/in"))
	if code != 0 || strings.Contains(string(result), "cred\"") || strings.Contains(string(result), "tok") {
		t.Fatalf("control: %d %s", code, result)
	}
	result, _ = b.rpc("ListTaskPushNotificationConfigs", `{"taskId":"`+asked.ID+`"}`)
	if strings.Contains(string(result), "tok") || !strings.Contains(string(result), "127.0.0.1") {
		t.Errorf("%s", result)
	}
	b.answer(true)
	b.until(asked.ID, Completed)
	for end := time.Now().Add(20 * time.Second); got.Load() < 2 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if s, _ := last.Load().(string); got.Load() < 2 || !strings.HasPrefix(s, "Bearer cred tok ") ||
		!strings.Contains(s, `"task":`) {
		t.Errorf("%d tries, the last %s", got.Load(), s)
	}
	seen := map[string]int{}
	for end := time.Now().Add(20 * time.Second); seen["sent"] < 1 && time.Now().Before(end); { // recorded after the answer
		time.Sleep(20 * time.Millisecond)
		clear(seen)
		for _, r := range pushedOf(t, b) {
			if r.Config != "" && r.Host == "127.0.0.1" && r.Principal == "token:ann" {
				seen[r.Event]++
			}
		}
	}
	if seen["named"] != 1 || seen["sent"] < 1 {
		t.Errorf("the log has %v", seen)
	}
	// the name stands for a public address at first, and for metadata at the try
	b.names.mu.Lock()
	b.names.all = []string{"93.184.216.34", "169.254.169.254"}
	b.names.mu.Unlock()
	rebound := b.send(message("t.note", "y"))
	if _, code := b.rpc("CreateTaskPushNotificationConfig",
		`{"taskId":"`+rebound.ID+`","url":"https://evil.example/"}`); code != 0 {
		t.Fatalf("control: a public address: %d", code)
	}
	b.answer(false)
	b.until(rebound.ID, Rejected)
	p := &pusher{tasks: &tasks{db: b.h.Store}}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if due, err := p.due(t.Context()); err != nil || len(due) == 0 {
			break
		}
	}
	if due, err := p.due(t.Context()); err != nil || len(due) > 0 {
		t.Errorf("a receiver that moved inside is tried again: %v %v", due, err)
	}
}

// pushedOf are the records of push notifications in the log of a bench.
func pushedOf(t *testing.T, b *bench) (out []pushed) {
	t.Helper()
	if err := audit.Range(t.Context(), audit.Dir(b.state), 0, 1<<62, func(r audit.Record) error {
		var p pushed
		if r.Kind == Kind && json.Unmarshal(r.Body, &p) == nil {
			out = append(out, p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestForgedTask: a task that no waldo with the key of the store wrote is neither carried out nor shown, and that is
// recorded. Without a key it is the control.
func TestForgedTask(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		b := newBench(t, "")
		if keyed {
			b.h.Store.MarkWith(func() ([]byte, error) { return []byte("of all hosts, 32 bytes or more .."), nil })
		}
		mine := b.until(b.send(message("t.echo", "one")).ID, Completed)
		edit := func(query string) {
			t.Helper()
			if err := b.h.Store.Update(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.Exec(query, mine.ID)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		edit(`INSERT INTO a2a_tasks SELECT 'forged', principal, 'forged', context, 'TASK_STATE_SUBMITTED', changed, '', '', size,
			replace(replace(replace(body, id, 'forged'), first, 'forged'), 'COMPLETED', 'SUBMITTED') FROM a2a_tasks WHERE id = $1`)
		refused := func() bool {
			n := 0
			_, err := audit.All(t.Context(), audit.Dir(b.state), func(r audit.Record) error {
				if r.Kind == KindTask && strings.Contains(string(r.Body), `"forged","code":"row.forged"`) {
					n++
				}
				return nil
			})
			return err == nil && n == 1
		}
		state, want := "", map[bool]State{false: Completed, true: Rejected}[keyed]
		for end := time.Now().Add(60 * time.Second); state != string(want) && time.Now().Before(end); {
			if err := b.h.Store.View(t.Context(), func(tx *sql.Tx) error {
				return tx.QueryRow(`SELECT state FROM a2a_tasks WHERE id = 'forged'`).Scan(&state)
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if state != string(want) || refused() != keyed {
			t.Errorf("keyed %v: %s, refused %v", keyed, state, refused())
		}
		if _, code := b.task(mine.ID); code != 0 {
			t.Errorf("control: %d", code)
		}
		edit(`UPDATE a2a_tasks SET context = 'another' WHERE id = $1`)
		for _, id := range []string{"forged", mine.ID} {
			if _, code := b.task(id); code != map[bool]int{false: 0, true: -32001}[keyed] {
				t.Errorf("keyed %v: %s: %d", keyed, id, code)
			}
		}
	}
}
