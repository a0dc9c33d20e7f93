package e2b

import (
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"waldo/internal/storage/sandboxes"
	"waldo/internal/storage/workspace"
)

// Limits of files.
const (
	maxUpload = 1 << 30          // bytes of one request; the sandbox's disk is the tighter bound
	maxParts  = 1000             // files of one request
	slowest   = 10 * time.Minute // in which an upload is there
	stalled   = 30 * time.Second // without a byte of it
)

// roots are the folders of a sandbox whose files waldo keeps between commands, by where commands see them.
var roots = []struct {
	at     string
	folder workspace.Folder
}{{home, workspace.Files}, {"/tmp", workspace.Tmp}}

// locate returns the folder of the workspace of a client's path, and the name below it: "." is the folder itself.
func locate(name string) (f workspace.Folder, rel, abs string, err error) {
	if strings.ContainsRune(name, 0) || len(name) > workspace.MaxName {
		return "", "", "", fail(400, "path: at most %d bytes, without NUL", workspace.MaxName)
	}
	abs = place(name)
	for _, r := range roots {
		if abs == r.at {
			return r.folder, ".", abs, nil
		}
		rest, ok := strings.CutPrefix(abs, r.at+"/")
		if !ok {
			continue
		}
		if rel, err = workspace.Clean(rest); err != nil {
			return "", "", abs, fail(400, "path %.100q: %v", name, err)
		}
		return r.folder, rel, abs, nil
	}
	return "", "", abs, fail(404, "path %.100q: waldo keeps files below %s and /tmp; the rest belongs to the template", name, home)
}

// disk is an open folder of a sandbox. Nothing of it leads out: no file of a workspace is a link, and a link would be
// followed within the folder alone.
type disk struct {
	*os.Root
	w      *workspace.Workspace
	folder workspace.Folder
	rel    string
	abs    string
	most   int64
	closer []func()
}

func (d *disk) close() {
	for _, f := range d.closer {
		f()
	}
}

// disk opens the folder of a path. Files of running commands are brought in first.
func (s *server) disk(ctx context.Context, b box, name string) (*disk, error) {
	folder, rel, abs, err := locate(name)
	if err != nil {
		return nil, err
	}
	is, w, done, err := s.m.Files(ctx, b.Owner, b.ID)
	if err != nil {
		return nil, err
	}
	d := &disk{w: w, folder: folder, rel: rel, abs: abs, most: is.Limits.Disk, closer: []func(){done}}
	if err = w.Add(folder); err == nil {
		s.of(b.ID).share()
		d.Root, err = os.OpenRoot(w.Path(folder))
	}
	if err != nil {
		d.close()
		return nil, err
	}
	d.closer = append(d.closer, func() { _ = d.Root.Close() })
	return d, nil
}

// written hands changed files on to running commands.
func (s *server) written(b box) { s.of(b.ID).share() }

// about converts an error of the file system.
func about(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fail(404, "path %.200q does not exist", name)
	case errors.Is(err, fs.ErrExist):
		return fail(409, "path %.200q exists", name)
	case errors.Is(err, workspace.ErrTooMuch):
		return fail(507, "%v", err)
	case errors.Is(err, workspace.ErrName), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.ELOOP), strings.Contains(err.Error(), "escapes from parent"):
		return fail(400, "path %.200q: %v", name, reason(err))
	}
	return err
}

// reason returns what was wrong, without paths of this machine.
func reason(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}

// routeFiles adds the routes of files.
func (s *server) routeFiles() {
	s.mux.HandleFunc("GET /files", func(w http.ResponseWriter, r *http.Request) { s.files(w, r, "read", s.download) })
	s.mux.HandleFunc("POST /files", func(w http.ResponseWriter, r *http.Request) { s.files(w, r, "write", s.upload) })
}

// files lets a request in by the token of its sandbox, or by the signature of its address.
func (s *server) files(
	w http.ResponseWriter, r *http.Request, op string, f func(box, http.ResponseWriter, *http.Request) error,
) {
	var b box
	var err error
	if r.URL.Query().Has("signature") {
		b, err = s.signed(r, op)
	} else {
		b, _, err = s.inside(r)
	}
	if err == nil {
		err = f(b, w, r)
	}
	if err != nil {
		tell(w, failed(err))
	}
}

// signed returns the running sandbox whose token has signed an address. E2B's addresses do not name it where the
// client was given a sandboxUrl: then the tokens in memory are tried. A stranger makes waldo read nothing.
func (s *server) signed(r *http.Request, op string) (box, error) {
	q := r.URL.Query()
	got, until := q.Get("signature"), q.Get("signature_expiration")
	refused := fail(401, "the signature of the address does not hold")
	if len(got) > 100 || len(q.Get("path")) > workspace.MaxName ||
		q.Has("signature_expiration") && !fresh(until, time.Now()) {
		return box{}, fail(401, "the signature of the address does not hold, or its time is over")
	}
	found, sign := "", signature(q.Get("path"), op, q.Get("username"), until)
	try := func(ident, token any) bool {
		if hmac.Equal([]byte(got), []byte(sign(token.(string)))) {
			found = ident.(string)
		}
		return true
	}
	if ident, err := asked(r); err == nil {
		try(ident, s.token(ident, forFiles))
	} else {
		s.signers.Range(try)
	}
	if found == "" {
		return box{}, refused
	}
	b, _, err := s.running(r, found)
	return b, err
}

// fresh reports whether an expiry, in seconds since 1970, is still to come.
func fresh(until string, now time.Time) bool {
	n, err := strconv.ParseInt(until, 10, 64)
	return err == nil && len(until) <= 12 && now.Unix() < n
}

// signature is that of E2B's SDK, by a token: the digest of what is signed and of the token, which both sides have.
// What comes before the token is digested once.
func signature(name, op, user, until string) func(token string) string {
	if until != "" {
		until = ":" + until
	}
	begun := sha256.New()
	_, _ = io.WriteString(begun, strings.Join([]string{name, op, user, ""}, ":")) // never fails
	return func(token string) string {
		h, _ := begun.(hash.Cloner).Clone() // SHA-256 can
		_, _ = io.WriteString(h, token+until)
		return "v1_" + base64.RawStdEncoding.EncodeToString(h.Sum(nil))
	}
}

// download sends one file, without what the contract of exec hides.
func (s *server) download(b box, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("path")
	d, err := s.disk(r.Context(), b, name)
	if err != nil {
		return err
	}
	defer d.close()
	f, err := d.w.Get(d.folder, d.rel)
	if err != nil {
		return about(name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(d.rel)}))
	if st.Size() == 0 { // the SDK looks at it
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(http.StatusOK)
	c, _ := s.h.InForce().Policy.Lookup("exec")
	out := s.h.InForce().Redact.StreamOf(c, patient{w, http.NewResponseController(w)})
	_, err = io.Copy(out, f)
	if err = errors.Join(err, out.Close()); err != nil {
		panic(http.ErrAbortHandler) // half a file is no file
	}
	return s.record(r.Context(), record{Op: "read", Sandbox: b.ID, Principal: b.Owner, Path: d.abs, Bytes: st.Size()})
}

// patient gives each write its time.
type patient struct {
	io.Writer
	c *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.c.SetWriteDeadline(time.Now().Add(slowWrite))
	return p.Writer.Write(b)
}

// hurried gives each read its time, and all of them together theirs.
type hurried struct {
	io.Reader
	c   *http.ResponseController
	end time.Time
}

func (h hurried) Read(b []byte) (int, error) {
	at := time.Now().Add(stalled)
	if at.After(h.end) {
		at = h.end
	}
	_ = h.c.SetReadDeadline(at)
	n, err := h.Reader.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fail(400, "the upload stood still for %v, or took more than %v", stalled, slowest)
	}
	return n, err
}

// upload writes one file or several.
func (s *server) upload(b box, w http.ResponseWriter, r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Metadata-") {
			return fail(400, "waldo keeps no metadata of files")
		}
	}
	c := http.NewResponseController(w)
	body := io.Reader(hurried{http.MaxBytesReader(w, r.Body, maxUpload), c, time.Now().Add(slowest)})
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	switch coding := r.Header.Get("Content-Encoding"); coding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return fail(400, "the body is no gzip")
		}
		body = z // what comes out is bounded by the room of the sandbox
	default:
		return fail(415, "Content-Encoding: gzip, or none")
	}
	name := r.URL.Query().Get("path")
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return fail(415, "Content-Type: application/octet-stream or multipart/form-data")
	}
	out := []map[string]string{}
	switch kind {
	case "application/octet-stream":
		one, err := s.write(r.Context(), b, name, body)
		if err != nil {
			return err
		}
		out = append(out, one)
	case "multipart/form-data":
		if out, err = s.parts(r.Context(), b, name, multipart.NewReader(body, params["boundary"])); err != nil {
			return err
		}
	default:
		return fail(415, "Content-Type: application/octet-stream or multipart/form-data")
	}
	s.written(b)
	return answer(w, http.StatusOK, out)
}

// parts writes the files of a form. Each has its path as its file name, where the address has none.
func (s *server) parts(ctx context.Context, b box, name string, form *multipart.Reader) (out []map[string]string, err error) {
	out = []map[string]string{}
	for n := 0; ; n++ {
		p, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if f := failedAs(err); f != nil {
			return out, f
		}
		if err != nil {
			return out, fail(400, "the form cannot be read: %v", err)
		}
		if p.FormName() != "file" {
			continue
		}
		if n >= maxParts {
			return out, fail(413, "at most %d files in one request", maxParts)
		}
		at := name
		if at == "" {
			at = filename(p.Header.Get("Content-Disposition"))
		} else if n > 0 {
			return out, fail(400, "with path, a form has one file")
		}
		if at == "" {
			return out, fail(400, "a file of the form has no name")
		}
		one, err := s.write(ctx, b, at, p)
		if err != nil {
			return out, err
		}
		out = append(out, one)
	}
}

// filename returns the whole file name of a part: multipart's own leaves out the folders.
func filename(disposition string) string {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return ""
	}
	return params["filename"]
}

// write writes one file, as far as there is room. A file that is there keeps whether it can be executed.
func (s *server) write(ctx context.Context, b box, name string, from io.Reader) (map[string]string, error) {
	d, err := s.disk(ctx, b, name)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if d.rel == "." {
		return nil, fail(400, "path %.100q is a folder", name)
	}
	n, err := d.put(name, from)
	if err != nil {
		return nil, err
	}
	err = s.record(ctx, record{Op: "write", Sandbox: b.ID, Principal: b.Owner, Path: d.abs, Bytes: n})
	return map[string]string{"name": path.Base(d.abs), "type": "file", "path": d.abs}, err
}

// put writes a file in place of the one that is there.
func (d *disk) put(name string, from io.Reader) (int64, error) {
	left, err := d.w.Room(d.folder, workspace.Bounds{Bytes: d.most, Entries: maxEntries})
	if err != nil {
		return 0, err
	}
	mode := fs.FileMode(0o600)
	if st, err := d.Lstat(d.rel); err == nil {
		if !st.Mode().IsRegular() {
			return 0, fail(400, "path %.100q is a folder", name)
		}
		mode, left.Bytes = st.Mode().Perm(), left.Bytes+st.Size()
	}
	if left.Bytes < 0 || left.Entries < strings.Count(d.rel, "/")+1 {
		return 0, fail(507, "the sandbox is full: it holds %d bytes and %d files and folders", d.most, maxEntries)
	}
	if err := d.MkdirAll(path.Dir(d.rel), 0o700); err != nil {
		return 0, about(name, err)
	}
	n, err := workspace.Replace(d.Root, d.rel, mode, from, left.Bytes)
	var f *failure
	if errors.As(err, &f) {
		return n, f
	}
	var much *http.MaxBytesError
	if errors.As(err, &much) {
		return n, much
	}
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, fail(400, "the body ended early, or is no gzip")
	}
	return n, about(name, err)
}

// maxEntries bounds the files and folders of a sandbox.
const maxEntries = 20_000

// seen is what a look at a file or folder found.
type seen struct {
	mode fs.FileMode
	size int64
	at   time.Time // of its last change
}

func seenIn(st fs.FileInfo) seen { return seen{st.Mode(), st.Size(), st.ModTime()} }

// entry describes a file or folder as E2B's daemon does.
func entry(at string, st seen) map[string]any {
	kind, mode := "FILE_TYPE_FILE", st.mode
	if mode.IsDir() {
		kind = "FILE_TYPE_DIRECTORY"
	}
	return map[string]any{"name": path.Base(at), "type": kind, "path": at, "size": strconv.FormatInt(st.size, 10),
		"mode": uint32(mode.Perm()), "permissions": mode.String(), "owner": "user", "group": "user",
		"modifiedTime": st.at.UTC().Format(time.RFC3339Nano)}
}

// look returns what a path names: a file or a folder.
func (d *disk) look(name string) (fs.FileInfo, error) {
	st, err := d.Lstat(d.rel)
	if err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	return st, about(name, err)
}

// paths is the body of procedures on one path.
type paths struct {
	Path string `json:"path"`
}

// on opens the folder of the path of a body.
func (s *server) on(r *http.Request, b box, body []byte) (name string, d *disk, err error) {
	var in paths
	if err := parse(body, &in); err != nil {
		return "", nil, err
	}
	d, err = s.disk(r.Context(), b, in.Path)
	return in.Path, d, err
}

func (s *server) stat(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, r *http.Request, body []byte) (any, error) {
	name, d, err := s.on(r, b, body)
	if err != nil {
		return nil, err
	}
	defer d.close()
	st, err := d.look(name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"entry": entry(d.abs, seenIn(st))}, nil
}

func (s *server) makeDir(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, r *http.Request, body []byte) (any, error) {
	name, d, err := s.on(r, b, body)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if _, err := d.Lstat(d.rel); err == nil {
		return nil, fail(409, "path %.200q exists", name)
	}
	left, err := d.w.Room(d.folder, workspace.Bounds{Bytes: d.most, Entries: maxEntries})
	if err != nil || left.Entries < strings.Count(d.rel, "/")+1 {
		return nil, errors.Join(err, fail(507, "the sandbox is full: it holds %d files and folders", maxEntries))
	}
	if err := d.MkdirAll(d.rel, 0o700); err != nil {
		return nil, about(name, err)
	}
	s.written(b)
	st, err := d.look(name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"entry": entry(d.abs, seenIn(st))}, s.record(r.Context(), record{Op: "mkdir", Sandbox: b.ID,
		Principal: b.Owner, Path: d.abs})
}

func (s *server) remove(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, r *http.Request, body []byte) (any, error) {
	name, d, err := s.on(r, b, body)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if d.rel == "." {
		return nil, fail(400, "path %.100q cannot be removed", name)
	}
	if err := d.RemoveAll(d.rel); err != nil {
		return nil, about(name, err)
	}
	s.written(b)
	return struct{}{}, s.record(r.Context(), record{Op: "remove", Sandbox: b.ID, Principal: b.Owner, Path: d.abs})
}

func (s *server) move(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, r *http.Request, body []byte) (any, error) {
	var in struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	folder, to, abs, err := locate(in.Destination)
	if err != nil {
		return nil, err
	}
	d, err := s.disk(r.Context(), b, in.Source)
	if err != nil {
		return nil, err
	}
	defer d.close()
	st, err := d.look(in.Source)
	switch {
	case err != nil:
		return nil, err
	case folder != d.folder && st.IsDir():
		return nil, fail(400, "waldo moves no folder between %s and /tmp: write its files", home)
	case d.rel == "." || to == ".":
		return nil, fail(400, "the folder itself cannot be moved")
	case folder != d.folder:
		err = d.across(s, r.Context(), b, in.Destination)
	default:
		if err = d.MkdirAll(path.Dir(to), 0o700); err == nil {
			err = d.Rename(d.rel, to)
		}
		err = about(in.Destination, err)
	}
	if err != nil {
		return nil, err
	}
	s.written(b)
	return map[string]any{"entry": entry(abs, seenIn(st))}, s.record(r.Context(), record{Op: "move", Sandbox: b.ID,
		Principal: b.Owner, Path: abs, From: d.abs})
}

// across moves a file to the other folder.
func (d *disk) across(s *server, ctx context.Context, b box, name string) error {
	f, err := d.w.Get(d.folder, d.rel)
	if err != nil {
		return about(name, err)
	}
	defer f.Close()
	if _, err := s.write(ctx, b, name, f); err != nil {
		return err
	}
	return d.Remove(d.rel)
}

// maxListed bounds one list, and how deep it goes.
const (
	maxListed = 10_000
	maxDepth  = 32
)

func (s *server) listDir(b box, _ sandboxes.Sandbox, _ http.ResponseWriter, r *http.Request, body []byte) (any, error) {
	var in struct {
		Path  string `json:"path"`
		Depth uint32 `json:"depth"`
	}
	if err := parse(body, &in); err != nil {
		return nil, err
	}
	d, err := s.disk(r.Context(), b, in.Path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	st, err := d.look(in.Path)
	if err == nil && !st.IsDir() {
		err = fail(400, "path %.200q is no folder", in.Path)
	}
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	err = d.walk(min(max(int(in.Depth), 1), maxDepth), func(at string, st fs.FileInfo) error {
		if len(out) >= maxListed {
			return fail(413, "the folder holds more than %d entries", maxListed)
		}
		out = append(out, entry(at, seenIn(st)))
		return nil
	})
	return map[string]any{"entries": out}, err
}

// walk visits the files and folders below the path, as deep as depth.
func (d *disk) walk(depth int, f func(abs string, st fs.FileInfo) error) error {
	return fs.WalkDir(d.FS(), d.rel, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == d.rel || strings.HasPrefix(e.Name(), ".waldo-") || !e.IsDir() && !e.Type().IsRegular() {
			return ignored(err)
		}
		below := name
		if d.rel != "." {
			below = strings.TrimPrefix(name, d.rel+"/")
		}
		st, err := e.Info()
		if err != nil {
			return ignored(err)
		}
		if err := f(path.Join(d.abs, below), st); err != nil {
			return err
		}
		if e.IsDir() && strings.Count(below, "/")+1 >= depth {
			return fs.SkipDir
		}
		return nil
	})
}

// ignored leaves out what went away meanwhile.
func ignored(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
