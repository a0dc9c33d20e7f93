package e2b

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// TestStrangersReadNothing: an address with a wrong signature is refused by a server that has no store to read.
func TestStrangersReadNothing(t *testing.T) {
	s := &server{key: make([]byte, 32)}
	ident := id.New(id.Sandbox)
	s.signers.Store(ident, s.token(ident, forFiles))
	refused := func(signature string) (status int) {
		q := url.Values{"path": {"a"}, "signature": {signature}}
		defer func() {
			if recover() != nil {
				status = -1 // it reads
			}
		}()
		_, err := s.signed(httptest.NewRequest(http.MethodGet, "/files?"+q.Encode(), nil), "read")
		return failed(err).status
	}
	if got := refused("x"); got != 401 {
		t.Errorf("a stranger: %d", got)
	}
	if got := refused(signature("a", "read", "", "")(s.token(ident, forFiles))); got != -1 {
		t.Errorf("the control: %d", got)
	}
}

// TestRowsAreSmall: what a client chose the size of is in no row that lists of all sandboxes read.
func TestRowsAreSmall(t *testing.T) {
	store, err := database.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ctx := t.Context()
	s := &server{key: make([]byte, 32), h: &app.App{Storage: &app.Storage{Store: store}}, room: newRoom()}
	b := box{ID: id.New(id.Sandbox), Owner: "token:a", body: body{Env: map[string]string{"A": strings.Repeat("<", 1<<19)}}}
	old := id.New(id.Sandbox)
	err = store.Put(ctx, bucket, old, fmt.Sprintf(`{"id":%q,"owner":"token:b","metadata":{"A":%q}}`, old,
		strings.Repeat("x", 1<<20)))
	text, _, ferr := s.fits(ctx, b)
	if perr := s.put(ctx, b, text); err != nil || ferr != nil || perr != nil {
		t.Fatal(err, ferr, perr)
	}
	if err := store.Put(ctx, bodies, id.New(id.Sandbox), "{}"); err != nil {
		t.Fatal(err)
	}
	if err := s.upgrade(ctx); err != nil {
		t.Fatal(err)
	}
	rows, err := store.List(ctx, bucket)
	if err != nil || len(rows) != 2 || len(rows[b.ID]) > 1000 || len(rows[old]) > 1000 {
		t.Errorf("%d rows of %d and %d bytes: %v", len(rows), len(rows[b.ID]), len(rows[old]), err)
	}
	if names, err := store.Names(ctx, bodies); err != nil || len(names) != 2 {
		t.Errorf("%d bodies, %v", len(names), err)
	}
	all, err := s.sign(ctx)
	if err != nil || len(all) != 2 || len(all[0].Env)+len(all[1].Env)+len(all[1].Metadata)+len(all[0].Metadata) != 0 {
		t.Errorf("%d, %v", len(all), err)
	}
	for _, one := range all {
		if one, err = s.whole(ctx, one); err != nil || len(one.Env)+len(one.Metadata) != 1 {
			t.Errorf("the control: %v", err)
		}
	}
	more := box{Owner: b.Owner, body: body{Env: map[string]string{"A": strings.Repeat("<", 1<<18)}}}
	if _, _, err := s.fits(ctx, more); failedAs(err) == nil || failedAs(err).status != 429 {
		t.Errorf("more than one key has: %v", err)
	}
	more.Owner = "token:b"
	if _, _, err := s.fits(ctx, more); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// TestStreamsHaveShares: streams of one key and of one sandbox have their bounds, and another's find room.
func TestStreamsHaveShares(t *testing.T) {
	m := newRoom()
	open := func(owner, ident string) error {
		_, err := m.stream(t.Context(), box{ID: ident, Owner: owner})
		return err
	}
	for i := range maxStreamsKey {
		if err := open("a", fmt.Sprint(i/maxStreamsBox)); err != nil {
			t.Fatal(err)
		}
	}
	for _, who := range [][2]string{{"a", "9"}, {"b", "0"}} { // the key is full, the sandbox is
		if err := open(who[0], who[1]); failedAs(err) == nil || failedAs(err).status != 429 {
			t.Errorf("%s: %v", who, err)
		}
	}
	if err := open("b", "9"); err != nil {
		t.Errorf("the control: %v", err)
	}
}
