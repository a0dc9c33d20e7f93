package a2a

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/storage/database"
)

// job is a task as it is stored.
type job struct {
	Task
	Principal call.Principal  `json:"principal"`
	Seq       int64           `json:"seq"` // counts the changes that clients see
	Skill     call.Capability `json:"skill"`
	Args      json.RawMessage `json:"args"`
	Confirm   string          `json:"confirm,omitempty"`  // the token of a preview that the client quotes
	Approval  string          `json:"approval,omitempty"` // the question that is open
	Below     string          `json:"below,omitempty"`    // the question of a peer that its call under way waits for
	CallID    string          `json:"call,omitempty"`     // the last call
	First     string          `json:"first"`              // the id of the first message
	Key       string          `json:"key,omitempty"`      // the Idempotency-Key of that message
	Chain     []string        `json:"chain,omitempty"`    // the delegation that the client named
	Trace     call.Trace      `json:"trace,omitzero"`     // of the last message that named one
	Agent     call.Session    `json:"agent,omitempty"`    // the built-in agent that works on it; empty: it is one call
}

// say gives a task a state and a text of the agent.
func (j *job) say(s State, text string) {
	j.Status = Status{State: s, Timestamp: stamp(time.Now())}
	if text != "" {
		j.Status.Message = &Message{MessageID: fmt.Sprintf("%s-%d", j.ID, j.Seq+1), ContextID: j.ContextID, TaskID: j.ID,
			Role: roleAgent, Parts: []Part{textPart(text)}}
	}
}

// changed returns when clients last saw a change; the zero time if the row does not say.
func (j *job) changed() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, j.Status.Timestamp)
	return at
}

// Bounds of the tasks of all principals.
const (
	maxKept  = 500                // ended tasks of one principal; the oldest make room
	maxBytes = 64 << 20           // stored for one principal
	maxTask  = 8 << 20            // of one task
	maxPage  = 4 << 20            // of one answer to ListTasks, beyond its first task
	keepFor  = 7 * 24 * time.Hour // since the last change
)

// tasks are the tasks of a state directory. A restart of waldo loses none.
type tasks struct {
	db     *database.Store
	holder string            // this process
	gone   func(string) bool // whether a process has ended
	log    *audit.Log
}

var (
	errNone = errors.New("no such task")
	errMany = errors.New("too many tasks of this principal are open (gateway.limits.tasks_each): wait for some, or " +
		"cancel some")
	errAll  = errors.New("too many tasks are open (gateway.limits.tasks): try again later")
	errSize = errors.New("the tasks of this principal hold too many bytes: wait for some, or cancel some")
)

const going = `state IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_INPUT_REQUIRED')`

// count reads one number.
func count(tx *sql.Tx, query string, args ...any) (n int64, err error) {
	err = tx.QueryRow(query, args...).Scan(&n)
	return n, err
}

// create stores a new task, if its principal and all have room. Ended tasks of the principal make room for it. A
// message that comes again has its task already, which create returns.
func (s *tasks) create(ctx context.Context, j *job, push *PushConfig, each, all int) (made *job, err error) {
	made = j
	err = s.db.Update(ctx, func(tx *sql.Tx) error {
		old, _, err := s.scan(tx.QueryRow(`SELECT `+columns+` FROM a2a_tasks WHERE principal = $1 AND first = $2`,
			string(j.Principal), j.First).Scan)
		if err == nil && (old.Skill != j.Skill || string(old.Args) != string(j.Args) ||
			!slices.Equal(old.Chain, j.Chain)) {
			return badParams.says("another message had this messageId: each message has another id")
		}
		if err == nil || !errors.Is(err, errNone) {
			made = old
			return err
		}
		own, err := count(tx, `SELECT COUNT(*) FROM a2a_tasks WHERE principal = $1 AND `+going, string(j.Principal))
		if err == nil && own >= int64(each) {
			return errMany
		}
		total, terr := count(tx, `SELECT COUNT(*) FROM a2a_tasks WHERE `+going)
		if err = errors.Join(err, terr); err == nil && total >= int64(all) {
			return errAll
		}
		if err == nil {
			err = drop(tx, `principal = $1 AND NOT (`+going+`) AND id NOT IN (SELECT id FROM a2a_tasks WHERE principal = $1 AND
				NOT (`+going+`) ORDER BY changed DESC, id DESC LIMIT $2)`, string(j.Principal), maxKept-1)
		}
		for err == nil {
			var held int64
			held, err = heldBy(tx, j.Principal)
			if err != nil || held+maxTask <= maxBytes {
				break
			}
			var oldest string
			if err = tx.QueryRow(`SELECT id FROM a2a_tasks WHERE principal = $1 AND NOT (`+going+`)
				ORDER BY changed, id LIMIT 1`, string(j.Principal)).Scan(&oldest); errors.Is(err, sql.ErrNoRows) {
				return errSize
			}
			if err == nil {
				err = drop(tx, `id = $1`, oldest)
			}
		}
		if err == nil {
			err = s.put(tx, j, "")
		}
		if err == nil && push != nil {
			err = s.putPush(tx, *push, j.Seq)
		}
		return err
	})
	return made, err
}

// drop removes tasks with their push configurations.
func drop(tx *sql.Tx, where string, args ...any) error {
	_, err := tx.Exec(`DELETE FROM a2a_pushes WHERE task IN (SELECT id FROM a2a_tasks WHERE `+where+`)`, args...)
	if err == nil {
		_, err = tx.Exec(`DELETE FROM a2a_tasks WHERE `+where, args...)
	}
	return err
}

// held returns the bytes that are stored for a principal.
func (s *tasks) held(ctx context.Context, who call.Principal) (n int64, err error) {
	err = s.db.View(ctx, func(tx *sql.Tx) error {
		n, err = heldBy(tx, who)
		return err
	})
	return n, err
}

func heldBy(tx *sql.Tx, who call.Principal) (int64, error) {
	return count(tx, `SELECT COALESCE(SUM(size), 0) FROM a2a_tasks WHERE principal = $1`, string(who))
}

// put writes a task. Its push configurations are due.
func (s *tasks) put(tx *sql.Tx, j *job, holder string) error {
	j.Seq++
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	body, err := s.db.Mark(string(b), table, j.ID, string(j.Principal), j.First, j.ContextID, string(j.Status.State),
		j.Status.Timestamp, holder, j.Approval)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO a2a_tasks (id, principal, first, context, state, changed, holder, approval, size, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO UPDATE SET state = excluded.state,
		changed = excluded.changed, holder = excluded.holder, approval = excluded.approval, size = excluded.size,
		body = excluded.body`, j.ID, string(j.Principal), j.First, j.ContextID, string(j.Status.State), j.Status.Timestamp,
		holder, j.Approval, len(body), body)
	if err == nil {
		_, err = tx.Exec(`UPDATE a2a_pushes SET want = $1 WHERE task = $2`, j.Seq, j.ID)
	}
	return err
}

// columns are all of a row but its size.
const columns = `id, principal, first, context, state, changed, holder, approval, body`

// scan reads columns of a task, and returns errNone or, for a row without a right mark, database.ErrForged.
func (s *tasks) scan(row func(...any) error, rest ...any) (j *job, holder string, err error) {
	var id, principal, first, in, state, changed, approval, body string
	to := append([]any{&id, &principal, &first, &in, &state, &changed, &holder, &approval, &body}, rest...)
	if err := row(to...); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = errNone
		}
		return nil, "", err
	}
	text, err := s.db.Unmark(body, table, id, principal, first, in, state, changed, holder, approval)
	if err != nil {
		return nil, "", err
	}
	j = &job{}
	return j, holder, json.Unmarshal([]byte(text), j)
}

const table = "a2a_tasks" // in marks

// get returns a task of a principal, or errNone, also if another principal has it.
func (s *tasks) get(ctx context.Context, p call.Principal, id string) (j *job, err error) {
	err = s.db.View(ctx, func(tx *sql.Tx) error {
		j, _, err = s.scan(tx.QueryRow(`SELECT `+columns+` FROM a2a_tasks WHERE id = $1 AND principal = $2`, id, string(p)).Scan)
		return err
	})
	return j, err
}

// Whose a changed task is: of no process, of this one, or of whose it was.
type hold int

const (
	free hold = iota
	take
	keep
)

// change changes a task. do reports whether there is a change, and must not call the store.
func (s *tasks) change(ctx context.Context, id string, h hold, do func(j *job, holder string) bool) (
	j *job, did bool, err error,
) {
	err = s.db.Update(context.WithoutCancel(ctx), func(tx *sql.Tx) error {
		holder := ""
		if j, holder, err = s.scan(tx.QueryRow(`SELECT `+columns+` FROM a2a_tasks WHERE id = $1`, id).Scan); err != nil {
			return err
		}
		if did = do(j, holder); !did {
			return nil
		}
		return s.put(tx, j, map[hold]string{take: s.holder, keep: holder}[h])
	})
	if errors.Is(err, database.ErrForged) {
		err = errors.Join(errNone, s.refuse(ctx, id))
	}
	return j, did, err
}

// KindTask is the kind of the records about tasks that waldo does not carry out.
const KindTask = "task"

// refused is a record: a row of a task has not the mark of a waldo.
type refused struct {
	Task string `json:"task_id"`
	Code string `json:"code"`
}

// taskLine summarises such a record in one line of waldo log.
func taskLine(p terminal.Paint, body json.RawMessage) display.Text {
	var r refused
	_ = json.Unmarshal(body, &r)
	return display.Sprintf("%s %s: %s", p.Bad("refused"), r.Task, r.Code)
}

// refuse records that the row of a task is forged, and takes it from those that wait. It stays as it is, for a week.
func (s *tasks) refuse(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	b, err := json.Marshal(refused{id, "row.forged"})
	if err == nil {
		_, err = s.log.Append(ctx, KindTask, b, true)
	}
	if err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE a2a_tasks SET state = $1, changed = $2, holder = '', approval = '' WHERE id = $3`,
			string(Rejected), stamp(time.Now()), id)
		return err
	})
}

// due returns the tasks that wait for a worker, the oldest first: new ones, and those whose process has ended during
// their call.
func (s *tasks) due(ctx context.Context) (out []waiter, err error) {
	err = s.db.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT id, principal, holder FROM a2a_tasks WHERE state IN ('TASK_STATE_SUBMITTED',
			'TASK_STATE_WORKING') OR state = 'TASK_STATE_INPUT_REQUIRED' AND holder <> '' ORDER BY changed, id LIMIT 2000`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var w waiter
			var holder string
			if err := rows.Scan(&w.id, &w.principal, &holder); err != nil {
				return err
			}
			if holder == "" || s.gone(holder) {
				out = append(out, w)
			}
		}
		return rows.Err()
	})
	return out, err
}

// waiter is a task that waits: for a worker, or for an answer.
type waiter struct {
	id, principal, approval string
	bound                   bool // it can have a delegation
}

// asking returns the tasks with an open question.
func (s *tasks) asking(ctx context.Context) (out []waiter, err error) {
	err = s.db.View(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT id, principal, approval, body LIKE '%"chain":[%' FROM a2a_tasks
			WHERE state = 'TASK_STATE_INPUT_REQUIRED' AND approval <> ''`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var w waiter
			if err := rows.Scan(&w.id, &w.principal, &w.approval, &w.bound); err != nil {
				return err
			}
			out = append(out, w)
		}
		return rows.Err()
	})
	return out, err
}

// page is a part of the list of a principal's tasks.
type page struct {
	jobs  []*job
	next  string
	total int64
}

// list returns the tasks of a principal, the last changed first.
func (s *tasks) list(ctx context.Context, p call.Principal, l listing, n int) (out page, err error) {
	where, args := `principal = $1`, []any{string(p)}
	add := func(condition string, v any) {
		args = append(args, v)
		where += fmt.Sprintf(" AND "+condition, len(args))
	}
	if l.ContextID != "" {
		add("context = $%d", l.ContextID)
	}
	if l.Status != "" {
		add("state = $%d", string(l.Status))
	}
	if l.After != "" {
		add("changed >= $%d", l.After)
	}
	err = s.db.View(ctx, func(tx *sql.Tx) error {
		if out.total, err = count(tx, `SELECT COUNT(*) FROM a2a_tasks WHERE `+where, args...); err != nil {
			return err
		}
		if l.PageToken != "" {
			b, _ := base64.RawURLEncoding.DecodeString(l.PageToken)
			changed, id, ok := strings.Cut(string(b), " ")
			if !ok {
				return badParams.says("pageToken is not one that waldo gave")
			}
			args = append(args, changed, id)
			where += fmt.Sprintf(" AND (changed < $%d OR changed = $%d AND id < $%d)", len(args)-1, len(args)-1, len(args))
		}
		args = append(args, n+1)
		rows, err := tx.Query(`SELECT `+columns+`, size FROM a2a_tasks WHERE `+where+
			fmt.Sprintf(` ORDER BY changed DESC, id DESC LIMIT $%d`, len(args)), args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for held, size := int64(0), int64(0); rows.Next(); {
			j, _, err := s.scan(rows.Scan, &size)
			if errors.Is(err, database.ErrForged) {
				continue
			}
			if err != nil {
				return err
			}
			if held += size; len(out.jobs) == n || len(out.jobs) > 0 && held > maxPage {
				last := out.jobs[len(out.jobs)-1]
				out.next = base64.RawURLEncoding.EncodeToString([]byte(last.Status.Timestamp + " " + last.ID))
				break
			}
			out.jobs = append(out.jobs, j)
		}
		return rows.Err()
	})
	return out, err
}

// sweep removes tasks that have not changed for a week, unless a call is under way.
func (s *tasks) sweep(ctx context.Context, now time.Time) error {
	return s.db.Update(ctx, func(tx *sql.Tx) error {
		return drop(tx, `state NOT IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING') AND changed < $1`,
			stamp(now.Add(-keepFor)))
	})
}
