package approval

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"filippo.io/age"

	"waldo/internal/detect/pattern"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Signer signs answers with a key that no agent holds.
type Signer interface {
	Name() string                        // of an enrolled approver
	Sign(message []byte) ([]byte, error) // Ed25519
}

// Approver is a person who can answer. The first one enrolled is the root: it signs the enrolment of every other, and
// its own.
type Approver struct {
	Name  string   `json:"name"`
	Key   string   `json:"key"` // Ed25519 public key, 64 hexadecimal digits; or a passkey.Credential as text
	Roles []string `json:"roles"`
	By    string   `json:"by"` // the root, which enrolled this one
	At    string   `json:"at"`
	// Trusted are the configurations that the first approver signs with its own enrolment.
	Trusted []Configuration `json:"trusted,omitempty"`
}

// Each kind of signed message begins with its own prefix, so that one signature never passes for another kind.
const (
	forAnswer   = "waldo approval answer v3\n"
	forApprover = "waldo approver v1\n"
	forRevoke   = "waldo approver revoked v1\n"
	forKey      = "waldo approver key v2\n"
)

// MinPassphrase is the minimum length of a passphrase in bytes. A reader of the state directory can try passphrases
// offline; scrypt makes each try cost 128 MiB and a third of a second.
const MinPassphrase = 12

// maxWork is the largest accepted scrypt work factor of a key file, as a power of two. It costs 1 GiB and seconds.
const maxWork = 20

var approverName = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,31}$`)

// key is a private key that was opened.
type key struct {
	name string
	k    ed25519.PrivateKey
}

func (k key) Name() string                        { return k.name }
func (k key) Sign(message []byte) ([]byte, error) { return ed25519.Sign(k.k, message), nil }

// NewSigner makes a signer from a key that the caller holds, for a token or for tests.
func NewSigner(name string, k ed25519.PrivateKey) Signer { return key{name, k} }

// Enrolment is a change of who may answer, as it is recorded: before it is made, and once more where it
// then failed.
type Enrolment struct {
	Action    string          `json:"action"`               // enrol or revoke
	Approver  string          `json:"approver"`             // whose right it is
	Key       string          `json:"key,omitempty"`        // fingerprint of the approver's key; with enrol
	Public    string          `json:"public_key,omitempty"` // the key itself, as in Approver; with enrol
	Roles     []string        `json:"roles,omitempty"`      // with enrol
	Trusted   []Configuration `json:"trusted,omitempty"`    // with the first enrolment
	By        string          `json:"by"`                   // who signs
	At        string          `json:"signed_at,omitempty"`  // when it was signed
	Signature string          `json:"signature,omitempty"`  // base64, over the enrolment or the revocation
	From      string          `json:"from,omitempty"`       // the state directory of the replica that recorded it first; empty: this one
	Failed    string          `json:"failed,omitempty"`     // why it was not made after all; empty: it was
}

// Limits on an approver's roles, so that one record of the log holds all of them.
const (
	maxRoles = 50
	maxRole  = 64 // bytes
)

// record has change made once e is on record, and records its failure.
func (k *Service) record(ctx context.Context, e Enrolment, change func() error) error {
	if k.Records == nil {
		return change()
	}
	if err := k.Records.Enrolled(ctx, e); err != nil {
		return fmt.Errorf("it could not be recorded, and was not done: %w", err)
	}
	err := change()
	if err != nil {
		e.Failed = err.Error()
		err = errors.Join(err, k.Records.Enrolled(context.WithoutCancel(ctx), e))
	}
	return err
}

// Enroll makes a key for a new approver, seals it with the passphrase in the state directory and
// enters its public half. The first approver becomes the root and needs no signer: call this with
// nil only for a person at a terminal. Every later one needs the root's. The first one signs the configurations of
// trusted.
func (k *Service) Enroll(
	ctx context.Context, name string, roles []string, passphrase secret.Value, by Signer, trusted ...Configuration,
) (Approver, error) {
	if len(passphrase.Reveal()) < MinPassphrase {
		return Approver{}, fmt.Errorf("approval: the passphrase needs at least %d bytes", MinPassphrase)
	}
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Approver{}, fmt.Errorf("approval: %w", err)
	}
	if by == nil {
		by = key{name, private}
	}
	if !approverName().MatchString(name) {
		return Approver{}, badName(name)
	}
	st, err := k.standing(ctx)
	if err != nil {
		return Approver{}, err
	}
	if !st.names(name) {
		if err := os.Remove(k.keyFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of no use any more
			return Approver{}, fmt.Errorf("approval: %w", err)
		}
	}
	if err := k.seal(name, private, passphrase); err != nil { // first: an approver without a key locks the others out
		return Approver{}, err
	}
	a, err := k.EnrollKey(ctx, name, roles, pub, by, trusted...)
	if err != nil {
		return Approver{}, errors.Join(err, os.Remove(k.keyFile(name)))
	}
	return a, nil
}

// EnrollKey enrols an approver whose private key is stored outside waldo. Only the first approver can be self-signed.
func (k *Service) EnrollKey(
	ctx context.Context, name string, roles []string, pub ed25519.PublicKey, by Signer, trusted ...Configuration,
) (Approver, error) {
	return k.EnrollPublic(ctx, name, roles, hex.EncodeToString(pub), by, trusted...)
}

// EnrollPublic is EnrollKey for a public key as Approver.Key has it, also of a passkey.
func (k *Service) EnrollPublic(
	ctx context.Context, name string, roles []string, public string, by Signer, trusted ...Configuration,
) (Approver, error) {
	a, err := k.NewApprover(name, roles, public, by.Name(), trusted...)
	if err != nil {
		return Approver{}, err
	}
	sig, err := by.Sign(a.Message())
	if err != nil {
		return Approver{}, fmt.Errorf("approval: signing: %w", err)
	}
	return a, k.EnrollSigned(ctx, a, sig)
}

// NewApprover returns the record of an approver, which by then signs. It enrols no one. The first approver signs the
// configurations of trusted with its own enrolment.
func (k *Service) NewApprover(name string, roles []string, key, by string, trusted ...Configuration) (Approver, error) {
	if !approverName().MatchString(name) {
		return Approver{}, badName(name)
	}
	if len(roles) > maxRoles || slices.ContainsFunc(roles, func(r string) bool { return len(r) > maxRole }) {
		return Approver{}, fmt.Errorf("approval: an approver has at most %d roles of at most %d bytes", maxRoles, maxRole)
	}
	a := Approver{Name: name, Key: key, Roles: append([]string{}, roles...), By: by, At: database.Stamp(k.now())}
	if by != name {
		return a, nil
	}
	var err error
	a.Trusted, err = trusts(trusted)
	return a, err
}

// Message returns the bytes that the first approver signs to enrol this one.
func (a Approver) Message() []byte { return append([]byte(forApprover), canonical(a)...) }

// EnrollSigned enrols an approver with the first approver's signature over its Message. Only the first approver can
// be self-signed.
func (k *Service) EnrollSigned(ctx context.Context, a Approver, sig []byte) error {
	if err := k.mayBeFirst(ctx, a); err != nil {
		return err
	}
	if st, err := k.standing(ctx); k.root() != "" && (err != nil || st.names(a.Name)) {
		return errors.Join(err, fmt.Errorf("approval: enrolling %s: there was one of that name", a.Name))
	}
	record := canonical(a)
	e := Enrolment{Action: "enrol", Approver: a.Name, Key: a.Fingerprint(), Public: a.Key,
		Roles: a.Roles, Trusted: a.Trusted, By: a.By, At: a.At, Signature: base64.StdEncoding.EncodeToString(sig)}
	err := k.record(ctx, e, func() error {
		st, err := k.standing(ctx)
		if err != nil {
			return err
		}
		return k.Store.Update(ctx, func(tx *sql.Tx) error { return k.enter(tx, st, a, string(record), sig) })
	})
	if err != nil {
		return fmt.Errorf("approval: enrolling %s: %w", a.Name, err)
	}
	return nil
}

func badName(name string) error {
	return fmt.Errorf("approval: invalid approver name %q: use up to 32 of a-z, 0-9, '.', '_', '-'", name)
}

// mayBeFirst refuses a self-signed enrolment if the log or the configuration names a first approver. Otherwise an
// attacker who removes the rows of the others would become the first.
func (k *Service) mayBeFirst(ctx context.Context, a Approver) error {
	if a.By != a.Name {
		return nil
	}
	if !pinned(k.pins(), a.Fingerprint()) {
		return refused("approver.root",
			"the configuration names another first approver, who must sign the enrolment of %s", a.Name)
	}
	st, err := k.standing(ctx)
	if err != nil || st.noRoot != nil {
		return err
	}
	return refused("approver.root", "the log names %s as the first approver, who must sign the enrolment of %s",
		st.root.Name, a.Name)
}

// enter checks who signs and writes the row. Rows that the log knows nothing of are replaced.
func (k *Service) enter(tx *sql.Tx, st *standing, a Approver, record string, sig []byte) error {
	if k.root() != "" {
		return st.admits(a)
	}
	if a.By == a.Name { // the log has no other first approver
		if _, err := tx.Exec(`DELETE FROM approvers WHERE place = $1`, k.Store.Place()); err != nil {
			return err
		}
		_, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND name = $2`, k.Store.Bucket(RootBucket), RootName)
		if err != nil {
			return err
		}
	} else if old, _, err := k.row(tx, a.Name); err == nil && st.holders[old.Fingerprint()].Name == "" {
		if _, err := tx.Exec(`DELETE FROM approvers WHERE name = $1 AND place = $2`, a.Name, k.Store.Place()); err != nil {
			return err
		}
	}
	var n int
	if err := tx.QueryRow(`SELECT COUNT(*) FROM approvers WHERE place = $1`, k.Store.Place()).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		if a.By != a.Name {
			return fmt.Errorf("%s is not enrolled", a.By)
		}
		if _, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $4)`,
			k.Store.Bucket(RootBucket), RootName, a.Fingerprint(), a.At); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(`INSERT INTO approvers (place, name, record, signature, revoked) VALUES ($1, $2, $3, $4, '')`,
		k.Store.Place(), a.Name, record, base64.StdEncoding.EncodeToString(sig)); err != nil {
		return fmt.Errorf("there is one of that name: %w", err)
	}
	_, err := k.approver(tx, st, a.Name) // its signature must hold, or the row does not stay
	return err
}

// Revoke ends an approver's right to answer, and the use of answers not yet consumed. It needs the
// root's signature.
func (k *Service) Revoke(ctx context.Context, name string, by Signer) error {
	at := database.Stamp(k.now())
	note := revocation(name, at)
	sig, err := by.Sign(note)
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	st, err := k.standing(ctx)
	if err != nil {
		return err
	}
	revoke := func(tx *sql.Tx) error {
		signer, err := k.approver(tx, st, by.Name())
		if err != nil {
			return err
		}
		if signer.By != signer.Name || !signer.signed(note, sig) {
			return errors.New("approval: only the first approver enrolled may revoke")
		}
		if k.root() != "" {
			_, err := st.named(name)
			return err
		}
		res, err := tx.Exec(`UPDATE approvers SET revoked = $1 WHERE name = $2 AND revoked = '' AND place = $3`,
			string(note), name, k.Store.Place())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("approval: %s is not enrolled", name)
		}
		return nil
	}
	e := Enrolment{
		Action: "revoke", Approver: name, By: by.Name(), At: at, Signature: base64.StdEncoding.EncodeToString(sig),
	}
	return k.record(ctx, e, func() error {
		return cmp.Or(k.Store.Update(ctx, revoke), k.Exchange(ctx))
	})
}

// Approvers returns all enrolled approvers. It omits rows with an invalid signature.
func (k *Service) Approvers(ctx context.Context) ([]Approver, error) {
	var out []Approver
	st, err := k.standing(ctx)
	if err != nil {
		return nil, err
	}
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		names, err := texts(tx, `SELECT name FROM approvers WHERE place = $1 ORDER BY name`, k.Store.Place())
		if k.root() != "" {
			names = st.all()
		}
		if err != nil {
			return err
		}
		for _, n := range names {
			if a, err := k.approver(tx, st, n); err == nil {
				out = append(out, a)
			}
		}
		return nil
	})
	return out, err
}

// approver returns an enrolled approver. It checks the enrolment's signature, that the root made it, and the log.
// Write access to the rows is not enough to enrol an approver.
func (k *Service) approver(tx *sql.Tx, st *standing, name string) (Approver, error) {
	if k.root() != "" { // the rows are of one state directory
		return st.named(name)
	}
	a, sig, err := k.row(tx, name)
	if err != nil {
		return Approver{}, err
	}
	root, rootSig := a, sig
	if a.By != a.Name {
		if root, rootSig, err = k.row(tx, a.By); err != nil {
			return Approver{}, err
		}
	}
	var first string
	if err := tx.QueryRow(`SELECT value FROM kv WHERE bucket = $1 AND name = $2`, k.Store.Bucket(RootBucket), RootName).
		Scan(&first); err != nil {
		return Approver{}, fmt.Errorf("approval: no first approver: %w", err)
	}
	if root.Fingerprint() != first || !pinned(k.pins(), root.Fingerprint()) {
		return Approver{}, fmt.Errorf("approval: %s was not enrolled by the first approver", name)
	}
	if root.By != root.Name || !root.signed(append([]byte(forApprover), canonical(root)...), rootSig) {
		return Approver{}, fmt.Errorf("approval: the enrolment of %s is forged", root.Name)
	}
	if !root.signed(append([]byte(forApprover), canonical(a)...), sig) {
		return Approver{}, fmt.Errorf("approval: the enrolment of %s is forged", name)
	}
	if err := st.admits(a); err != nil {
		return Approver{}, err
	}
	return a, nil
}

// row reads an approver who was not revoked, believing nothing yet.
func (k *Service) row(tx *sql.Tx, name string) (Approver, []byte, error) {
	var record, signature, revoked string
	err := tx.QueryRow(`SELECT record, signature, revoked FROM approvers WHERE name = $1 AND place = $2`, name,
		k.Store.Place()).Scan(&record, &signature, &revoked)
	if errors.Is(err, sql.ErrNoRows) {
		return Approver{}, nil, fmt.Errorf("approval: %s is not enrolled", name)
	}
	if err != nil {
		return Approver{}, nil, err
	}
	if revoked != "" {
		return Approver{}, nil, fmt.Errorf("approval: %s was revoked", name)
	}
	var a Approver
	if err := json.Unmarshal([]byte(record), &a); err != nil || a.Name != name {
		return Approver{}, nil, fmt.Errorf("approval: the enrolment of %s cannot be read", name)
	}
	sig, err := base64.StdEncoding.DecodeString(signature)
	return a, sig, err
}

// has reports whether an approver has a role. If the configuration names the role, the configuration alone decides.
func (k *Service) has(a Approver, role string) bool {
	if role == "" {
		return true
	}
	if names, ok := k.rules().Roles[role]; ok {
		return slices.Contains(names, a.Name) || slices.Contains(names, "approver:"+a.Name)
	}
	return slices.Contains(a.Roles, role)
}

func (k *Service) keyFile(name string) string { return k.Store.Path("approvers", name+".key") }

// seal writes a private key as an age file (binary, one scrypt recipient) that says whose key it is.
func (k *Service) seal(name string, private ed25519.PrivateKey, passphrase secret.Value) error {
	to, err := age.NewScryptRecipient(passphrase.Reveal())
	if err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	to.SetWorkFactor(k.work())
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	_, err = w.Write(append([]byte(forKey+name+"\n"), private.Seed()...))
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	file := k.keyFile(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Sync(), f.Close())
}

// ErrPassphrase is the error of Unseal for a passphrase that does not open the key.
var ErrPassphrase = errors.New("this is not the passphrase")

// Unseal opens an approver's key with the passphrase.
func (k *Service) Unseal(name string, passphrase secret.Value) (Signer, error) {
	if !approverName().MatchString(name) {
		return nil, badName(name)
	}
	b, err := safefile.Read(k.keyFile(name))
	if err != nil {
		return nil, fmt.Errorf("approval: %w", err)
	}
	id, err := age.NewScryptIdentity(passphrase.Reveal())
	if err != nil { // it is empty
		return nil, fmt.Errorf("%w of %s", ErrPassphrase, name)
	}
	id.SetMaxWorkFactor(maxWork)
	r, err := age.Decrypt(bytes.NewReader(b), id)
	if wrong := (*age.NoIdentityMatchError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("%w of %s", ErrPassphrase, name)
	}
	if err != nil {
		return nil, fmt.Errorf("approval: the key of %s does not open: %w", name, err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("approval: the key of %s: %w", name, err)
	}
	seed, ok := bytes.CutPrefix(text, []byte(forKey+name+"\n"))
	if !ok || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("approval: the key file of %s holds another key", name)
	}
	return key{name, ed25519.NewKeyFromSeed(seed)}, nil
}
