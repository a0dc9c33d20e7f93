package runner

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"waldo/internal/budget"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/tabular"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/workspace"
)

// ReadOutput is the capability that reads a file of the session's workspace.
const ReadOutput = "read_output"

// FileURI is the prefix of the address of a file of the session's workspace: waldo:///output/chart.png.
const FileURI = "waldo:///"

// Limits on the files that a run's answer shows, and on one answer of read_output.
const (
	maxPictures = 4
	maxPicture  = 1 << 20 // bytes of one
	maxLinks    = 20
	maxTables   = 4
	maxRead     = 4 << 20 // bytes of one answer
	sniffed     = 512     // bytes that tell what a file is
	showTime    = 5 * time.Second
	showMemory  = 2*tabular.Memory + maxPictures<<20
)

// around is how many bytes on either side of a piece of a file are searched for known secrets that reach over its edge.
const around = 64 << 10

// pictureTypes are the image types that a model is shown, detected by content and not by name.
var pictureTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// show adds a run's artifacts to its outcome: small pictures as images, other files as links that resources/read and
// read_output resolve, tables with a summary. Without room in waldo's own memory all are links. names are as
// "output/name".
func (r *Runner) show(
	ctx context.Context, out *call.Outcome, whose call.Principal, ws *workspace.Workspace, names []string,
) {
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	room := r.Work.Lease(string(whose))
	out.Held = room
	pictures, links, tables := 0, 0, 0
	if err := room.Cover(ctx, showMemory); err != nil {
		why := admit.NoMemory(err)
		out.Facts.Warnings = append(out.Facts.Warnings, why.Code+": files are shown as links alone: "+why.Text)
		pictures, tables = maxPictures, maxTables
	}
	for _, name := range names {
		if ctx.Err() != nil || links >= maxLinks && pictures >= maxPictures && tables >= maxTables {
			return
		}
		b, _, err := readFile(ws, name, 0, sniffed)
		if err != nil {
			continue // a link to it would lead nowhere
		}
		if kind := http.DetectContentType(b); pictures < maxPictures && pictureTypes[kind] {
			if b, whole, err := readFile(ws, name, 0, maxPicture); whole && err == nil {
				out.Content, pictures = append(out.Content, block(map[string]any{
					"type": "image", "mimeType": kind, "data": base64.StdEncoding.EncodeToString(b)})), pictures+1
				continue
			}
		}
		if links++; links <= maxLinks {
			out.Content = append(out.Content, block(map[string]any{
				"type": "resource_link", "uri": uriOf(name), "name": path.Base(name), "mimeType": typeOf(name, b),
			}))
		}
		if tables < maxTables {
			if text, ok := table(ctx, ws, name, room); ok {
				out.Content, tables = append(out.Content, call.Text(text)), tables+1
			}
		}
	}
}

// table describes a file of the workspace that holds a table, and how to read it.
func table(ctx context.Context, ws *workspace.Workspace, name string, room *budget.Lease) (text string, ok bool) {
	folder, rest, _ := strings.Cut(name, "/")
	f, err := ws.Get(workspace.Folder(folder), rest)
	if err != nil {
		return "", false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", false
	}
	defer room.Turn(st.Size())()
	if text, ok = tabular.Summary(ctx, name, f, st.Size()); ok {
		text = fmt.Sprintf("\n%s: %s\nall of it: read_output name=%s, or /workspace/%s in run_python", name, text, name, name)
	}
	return text, ok
}

// uriOf is the address of a file of the workspace, "output/name".
func uriOf(name string) string {
	return FileURI + (&url.URL{Path: name}).EscapedPath()
}

// typeOf guesses the media type of a file by its name, and where that tells nothing by its beginning.
func typeOf(name string, b []byte) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		t, _, _ = strings.Cut(t, ";")
		return t
	}
	t, _, _ := strings.Cut(http.DetectContentType(b), ";")
	return t
}

// block makes a content block of plain members.
func block(m map[string]any) call.Content {
	v, err := call.ArgsOf(m)
	if err != nil {
		panic("runner: a content block has no JSON form: " + err.Error()) // texts of bounded length only
	}
	kind, _ := m["type"].(string)
	return call.Content{Type: kind, Raw: v.Value()}
}

// readable are the folders of a workspace whose files read_output reads.
var readable = []workspace.Folder{workspace.Output, workspace.Input, workspace.Spill}

// readFile reads at most that many bytes of a file of the workspace, and says whether that is the rest of it.
func readFile(ws *workspace.Workspace, name string, from, most int64) (b []byte, whole bool, err error) {
	folder, rest, ok := strings.Cut(name, "/")
	if !ok || !slices.Contains(readable, workspace.Folder(folder)) {
		return nil, false, fs.ErrNotExist
	}
	f, err := ws.Get(workspace.Folder(folder), rest)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	b, err = io.ReadAll(io.NewSectionReader(f, from, most+1))
	if int64(len(b)) > most {
		return b[:most], false, err
	}
	return b, true, err
}

// pieceMemory is about how many bytes of memory a byte of a piece takes: read, searched, as base64, in the answer.
const pieceMemory = 4

// sizeOf returns the size of a file of the workspace in bytes; 0: it is not there.
func sizeOf(ws *workspace.Workspace, name string) int64 {
	folder, rest, _ := strings.Cut(name, "/")
	f, err := ws.Get(workspace.Folder(folder), rest)
	if err != nil {
		return 0
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	return st.Size()
}

// upload is a file that comes with a call: a text, or bytes as {"base64": "…"}.
type upload []byte

// UnmarshalJSON reads either form.
func (u *upload) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*u = upload(text)
		return nil
	}
	var packed map[string]string
	if err := json.Unmarshal(b, &packed); err != nil || len(packed) != 1 || packed["base64"] == "" {
		return errors.New("a file is a text or {base64: …}")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(packed["base64"])
	*u = raw
	return err
}

// readOutput answers read_output: {name, offset, limit}.
func (r *Runner) readOutput(ctx context.Context, d policy.Decision) (call.Outcome, error) {
	var a struct {
		Name   string `json:"name"`
		Offset int64  `json:"offset"`
		Limit  int64  `json:"limit"`
	}
	if decode(d.Call.Args, &a) != nil || a.Offset < 0 || a.Limit < 0 || a.Limit > maxRead {
		return refuse(d, call.Reason{
			Code: "args.invalid",
			Text: fmt.Sprintf("read_output takes name, as in output/report.csv, offset and limit, at most %d bytes", maxRead),
		}), nil
	}
	if a.Limit == 0 {
		a.Limit = maxRead
	}
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, facts.None
	if !files(d) {
		return refuse(d, call.Reason{
			Code: "files.denied", Text: "the contract gives this capability no workspace, so no files",
		}), nil
	}
	ws, err := r.Means.Workspace(d.Call.Session)
	if err != nil {
		return outcome(d, f), fmt.Errorf("call %s: %w", d.Call.ID, err)
	}
	defer ws.Close()
	name := strings.TrimPrefix(path.Clean("/"+a.Name), "/")
	if strings.HasPrefix(a.Name, "/") {
		name = strings.TrimPrefix(name, "workspace/")
	}
	ctx, cancel := context.WithTimeout(ctx, d.Contract.Timeout)
	defer cancel()
	room := r.Work.Lease(string(d.Call.Principal))
	if err := room.Cover(ctx, pieceMemory*min(a.Limit+2*around, sizeOf(ws, name))); err != nil {
		return refuse(d, *admit.NoMemory(err)), nil
	}
	b, next, err := r.piece(ws, name, a.Offset, a.Limit)
	if err != nil {
		_ = room.Close() // never fails
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, workspace.ErrName) {
		return absent(d, ws, a.Name), nil
	}
	if err != nil {
		return outcome(d, f), fmt.Errorf("call %s: %w", d.Call.ID, err)
	}
	f.Status = facts.OK
	f.Files.Read = []string{name}
	out := outcome(d, f)
	out.Held = room
	out.Content = []call.Content{content(name, b, next == 0 && a.Offset == 0)}
	if next > 0 {
		out.Content = append(out.Content, call.Text(fmt.Sprintf("\nwaldo: there is more: go on with offset %d", next)))
	}
	return out, nil
}

// piece reads at most that many bytes of a file of the workspace, without the known secrets that reach over an edge of
// the piece. It returns the offset of the next piece; 0: absent.
func (r *Runner) piece(ws *workspace.Workspace, name string, from, most int64) (b []byte, next int64, err error) {
	first := max(0, from-around)
	all, whole, err := readFile(ws, name, first, from-first+most+around)
	if err != nil {
		return nil, 0, err
	}
	size := int64(len(all))
	start := min(from-first, size)
	end := min(start+most, size)
	more := !whole || end < size
	text := string(all)
	start = size - int64(len(r.Known.Window(text, int(start), len(all), first > 0, false)))
	end = int64(len(r.Known.Window(text, 0, int(end), false, !whole)))
	if start < end {
		b = all[start:end]
	}
	if !more {
		return b, 0, nil
	}
	if len(b) == 0 { // the piece is within a secret
		return nil, max(first+start, from+most), nil
	}
	b = untorn(b)
	return b, first + start + int64(len(b)), nil
}

// absent answers for a file that does not exist: a failure with the names of the files that do. No policy denies it.
func absent(d policy.Decision, ws *workspace.Workspace, name string) call.Outcome {
	const most = 20
	text, names, more := fmt.Sprintf("no such file %+.200q in the workspace of this session", name), []string{}, false
	for _, folder := range readable {
		files, err := ws.List(folder, most+1)
		more = more || err != nil
		for _, f := range files {
			names = append(names, facts.Name(string(folder)+"/"+f.Name))
		}
	}
	switch {
	case len(names) == 0:
		text += ", which has no files"
	case len(names) > most || more:
		text += "; its first files: " + strings.Join(names[:min(most, len(names))], ", ")
	default:
		text += "; its files: " + strings.Join(names, ", ")
	}
	out := refuse(d, call.Reason{Code: "files.absent", Text: text})
	out.Facts.Status = facts.Failed
	return out
}

// untorn leaves out the beginning of a character at the end of a piece of text.
func untorn(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n < len(b); n++ {
		if cut := b[:len(b)-n]; utf8.RuneStart(b[len(b)-n]) && utf8.Valid(cut) && !utf8.FullRune(b[len(b)-n:]) {
			return cut
		}
	}
	return b
}

// content is a file, or a piece of one, as content: a whole picture as an image, text as text, other bytes in base64.
func content(name string, b []byte, whole bool) call.Content {
	kind := http.DetectContentType(b)
	switch {
	case whole && pictureTypes[kind] && len(b) <= maxPicture:
		return block(map[string]any{"type": "image", "mimeType": kind, "data": base64.StdEncoding.EncodeToString(b)})
	case utf8.Valid(b) && !bytes.ContainsRune(b, 0):
		return call.Text(string(b))
	}
	return block(map[string]any{"type": "resource",
		"resource": map[string]any{"uri": uriOf(name), "mimeType": typeOf(name, b),
			"blob": base64.StdEncoding.EncodeToString(b)}})
}
