package evidence

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/storage/safefile"
)

// Server is a witness (C2SP tlog-witness): it cosigns a checkpoint of a log that it knows if the checkpoint continues
// the last one. What it has seen is on the disk before it answers.
type Server struct {
	dir    string
	signer *torchwood.CosignatureSigner
	logs   map[string]note.Verifier // by origin
	mu     sync.Mutex
}

// NewServer returns a witness that stores what it has seen in a folder, and knows the logs of these vkeys.
func NewServer(dir, name string, key ed25519.PrivateKey, logs []string) (*Server, error) {
	signer, err := torchwood.NewCosignatureSigner(name, key)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, signer: signer, logs: map[string]note.Verifier{}}
	for _, vkey := range logs {
		v, err := note.NewVerifier(vkey)
		if err != nil {
			return nil, fmt.Errorf("%q is not the key of a log: %w", vkey, err)
		}
		s.logs[v.Name()] = v
	}
	return s, os.MkdirAll(dir, 0o700)
}

// Key returns the vkey of the witness.
func (s *Server) Key() string { return s.signer.Verifier().String() }

// maxRecords is the largest size of a log that is looked at. The arithmetic of trees overflows beyond 2^62.
const maxRecords = 1 << 53

// last is what a witness has seen of a log.
type last struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	Root   string `json:"root"` // base64
}

func (s *Server) file(origin string) string {
	return filepath.Join(s.dir, base64.RawURLEncoding.EncodeToString([]byte(origin))+".json")
}

func (s *Server) seen(origin string) (tree tlog.Tree, err error) {
	b, err := safefile.Read(s.file(origin))
	if errors.Is(err, os.ErrNotExist) {
		return tlog.Tree{}, nil
	}
	if err != nil {
		return tree, err
	}
	var l last
	if err := json.Unmarshal(b, &l); err != nil || l.Origin != origin {
		return tree, fmt.Errorf("%s is damaged", s.file(origin))
	}
	h, err := base64.StdEncoding.DecodeString(l.Root)
	if err != nil || len(h) != tlog.HashSize {
		return tree, fmt.Errorf("%s is damaged", s.file(origin))
	}
	return tlog.Tree{N: l.Size, Hash: tlog.Hash(h)}, nil
}

// ServeHTTP answers POST add-checkpoint.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/add-checkpoint" {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodPost {
		http.Error(w, "POST it", http.StatusMethodNotAllowed)
		return
	}
	old, proof, signed, err := parseRequest(http.MaxBytesReader(w, r.Body, maxAnswer))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code, body, kind := s.add(old, proof, signed)
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// parseRequest reads the body of add-checkpoint: the old size, the consistency proof, a blank line, the checkpoint.
func parseRequest(body io.Reader) (old int64, proof tlog.TreeProof, signed []byte, err error) {
	r := bufio.NewReader(body)
	line, err := r.ReadString('\n')
	text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "old ")
	if err != nil || !ok {
		return 0, nil, nil, errors.New("the first line is not: old SIZE")
	}
	if old, err = strconv.ParseInt(text, 10, 64); err != nil || old < 0 || strconv.FormatInt(old, 10) != text {
		return 0, nil, nil, errors.New("the old size is not a decimal number")
	}
	for {
		if line, err = r.ReadString('\n'); err != nil {
			return 0, nil, nil, errors.New("the request ends in its proof")
		}
		if line == "\n" {
			break
		}
		h, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(line, "\n"))
		if err != nil || len(h) != tlog.HashSize || len(proof) == maxProof {
			return 0, nil, nil, fmt.Errorf("a proof is at most %d hashes in base64, one in a line", maxProof)
		}
		proof = append(proof, tlog.Hash(h))
	}
	signed, err = io.ReadAll(r)
	return old, proof, signed, err
}

// add decides on a checkpoint, and returns the code, the body and its type ("" is text).
func (s *Server) add(old int64, proof tlog.TreeProof, signed []byte) (code int, body, kind string) {
	origin, _, _ := strings.Cut(string(signed), "\n")
	known := s.logs[origin]
	if known == nil {
		return http.StatusNotFound, "this witness does not know the log\n", ""
	}
	n, err := note.Open(signed, note.VerifierList(known))
	if err != nil {
		return http.StatusForbidden, "the log's key did not sign the checkpoint\n", ""
	}
	c, err := torchwood.ParseCheckpoint(n.Text)
	if err != nil || c.Extension != "" || c.N > maxRecords {
		return http.StatusBadRequest, "it is not a checkpoint of origin, size and root\n", ""
	}
	if old > c.N {
		return http.StatusBadRequest, "the old size is beyond the checkpoint\n", ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.seen(origin)
	switch {
	case err != nil:
		return http.StatusInternalServerError, "what this witness has seen cannot be read\n", ""
	case old != at.N:
		return http.StatusConflict, strconv.FormatInt(at.N, 10) + "\n", "text/x.tlog.size"
	case old == c.N && old > 0 && at.Hash != c.Hash:
		return http.StatusConflict, strconv.FormatInt(at.N, 10) + "\n", "text/x.tlog.size"
	case old == 0 || old == c.N:
		if len(proof) > 0 {
			return http.StatusUnprocessableEntity, "a proof is not needed here\n", ""
		}
	default:
		if err := tlog.CheckTree(proof, c.N, c.Hash, at.N, at.Hash); err != nil {
			return http.StatusUnprocessableEntity, "the checkpoint does not continue the last one\n", ""
		}
	}
	b, err := json.Marshal(last{origin, c.N, c.Hash.String()})
	if err == nil {
		err = safefile.Replace(s.file(origin), b, 0o600)
	}
	if err == nil {
		err = safefile.SyncDir(s.dir)
	}
	if err != nil {
		return http.StatusInternalServerError, "it cannot be stored\n", ""
	}
	out, err := note.Sign(&note.Note{Text: n.Text}, s.signer)
	if err != nil {
		return http.StatusInternalServerError, "it cannot be signed\n", ""
	}
	return http.StatusOK, strings.TrimPrefix(string(out), n.Text+"\n"), ""
}
