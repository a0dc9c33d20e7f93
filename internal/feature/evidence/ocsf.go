package evidence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/model/facts"
)

// ocsf writes records as events of OCSF 1.8.0 (schema.ocsf.io/1.8.0), and at the end what waldo log verify finds.
type ocsf struct {
	w       io.Writer
	version string // of waldo
	calls   calls
	find    func() (audit.Report, error)
	now     func() time.Time
}

// The classes of events. The thousands are the category.
const (
	baseEvent        = 0
	processActivity  = 1007
	detectionFinding = 2004
	entityManagement = 3004
	networkActivity  = 4001
	httpActivity     = 4002
	apiActivity      = 6003
)

// Numbers that mean the same in every class.
const (
	other = 99 // of activities, actions and states that OCSF has no number for

	informational, low, medium, high = 1, 2, 3, 4 // severity
	success, failure                 = 1, 2       // status
	allowed, denied                  = 1, 2       // action
)

// object is an event of OCSF, or a part of one.
type object = map[string]any

// attacks are the refusals of answers that no honest caller meets.
var attacks = []string{"approval.forged", "approval.changed", "approval.mismatch", "approval.used", "approval.twice",
	"approval.revoked", "approval.not_enrolled"}

func (o *ocsf) record(r audit.Record) error {
	f := o.calls.read(r)
	var e object
	switch r.Kind {
	case audit.KindDecision:
		e = o.decision(r, f)
	case audit.KindOutcome:
		e = o.outcome(r, f)
	case audit.KindVerdict, audit.KindAnswer:
		e = o.answer(r, f)
	case audit.KindApprover, audit.KindTrust, audit.KindChange:
		e = o.entity(r, f)
	case audit.KindEgress:
		return o.attempts(r, f)
	default:
		e = o.event(r, f, baseEvent, other, r.Kind)
	}
	if err := line(o.w, e); err != nil {
		return err
	}
	return o.attempts(r, f)
}

// event returns what every event of a record has. The members of its body that are not named in mapped are unmapped.
func (o *ocsf) event(r audit.Record, f fields, class, activity int, name string, mapped ...string) object {
	at, _ := time.Parse(audit.TimeLayout, r.At)
	rest := map[string]json.RawMessage{}
	_ = json.Unmarshal(r.Body, &rest)
	for _, m := range mapped {
		delete(rest, m)
	}
	rest["record_hash"] = json.RawMessage(`"` + r.Hash + `"`)
	meta := object{"uid": r.ID, "sequence": r.Seq, "original_time": r.At, "event_code": r.Kind}
	if f.CallID != "" {
		meta["correlation_uid"] = f.CallID
	}
	e := o.made(at, class, activity, name, informational, meta)
	e["unmapped"] = rest
	return e
}

// made returns what every event has.
func (o *ocsf) made(at time.Time, class, activity int, name string, severity int, meta object) object {
	meta["version"], meta["log_name"], meta["log_version"] = "1.8.0", "waldo log", fmt.Sprint(audit.Version)
	meta["product"] = object{"name": "waldo", "vendor_name": "waldo", "version": o.version}
	return object{
		"class_uid": class, "category_uid": class / 1000, "activity_id": activity, "activity_name": name,
		"type_uid": class*100 + activity, "severity_id": severity, "time": at.UnixMilli(), "metadata": meta,
	}
}

// called returns an event about a call: who made it, where it came from and what it called.
func (o *ocsf) called(r audit.Record, f fields, class, activity int, name string, mapped ...string) object {
	e := o.event(r, f, class, activity, name, append(mapped, "call_id", "capability", "principal", "session", "agent", "channel")...)
	actor := object{"user": object{"uid": cmp.Or(f.Principal, f.By, "unknown")}}
	if f.Session != "" {
		actor["session"] = object{"uid": f.Session}
	}
	e["actor"] = actor
	if class == apiActivity {
		e["src_endpoint"] = object{"svc_name": cmp.Or(f.Channel, "unknown")}
		api := object{"operation": cmp.Or(f.Capability, "unknown")}
		if f.CallID != "" {
			api["request"] = object{"uid": f.CallID}
		}
		e["api"] = api
	}
	if f.Agent != "" {
		profile(e, "ai_operation")
		e["message_context"] = object{"ai_role_id": 4, "ai_role": "Agent", "application": object{"name": f.Agent}}
	}
	return e
}

// profile notes that an event has attributes of a profile.
func profile(e object, name string) {
	meta := e["metadata"].(object)
	have, _ := meta["profiles"].([]string)
	meta["profiles"] = append(have, name)
}

// action notes whether waldo let something be done.
func action(e object, id int, word string) {
	profile(e, "security_control")
	e["action_id"], e["action"] = id, word
}

// operation is the activity of a call by the mode of its contract. Which kind of change a write is, waldo does not know.
func operation(mode string) (int, string) {
	if mode == "read" {
		return 2, "Read"
	}
	return other, cmp.Or(mode, "call")
}

func (o *ocsf) decision(r audit.Record, f fields) object {
	id, name := operation(f.Mode)
	e := o.called(r, f, apiActivity, id, name, "effect", "mode")
	switch f.Effect {
	case "allow":
		action(e, allowed, "Allowed")
	case "deny":
		action(e, denied, "Denied")
		e["severity_id"], e["status_id"], e["status"] = low, failure, "Failure"
	default:
		action(e, other, cmp.Or(f.Effect, "unknown"))
	}
	because(e, f)
	return e
}

// because gives the first reason of a record. All of them are unmapped.
func because(e object, f fields) {
	if all := f.reasons(); len(all) > 0 {
		e["status_code"], e["status_detail"] = all[0].Code, cmp.Or(all[0].Text, all[0].Code)
	}
}

func (o *ocsf) outcome(r audit.Record, f fields) object {
	var e object
	if f.Facts.Sandbox.ID == "" {
		id, name := operation(f.Mode)
		e = o.called(r, f, apiActivity, id, name, "status")
	} else {
		e = o.called(r, f, processActivity, 2, "Terminate", "status")
		e["process"] = object{"uid": f.Facts.Sandbox.ID, "name": f.Capability}
		e["device"] = object{"type_id": 0, "name": "localhost"} // the log does not name its machine
		if f.Facts.ExitCode != nil {
			e["exit_code"] = *f.Facts.ExitCode
		}
	}
	e["duration"] = int64(f.Facts.Usage.WallMS)
	switch facts.Status(f.Status) {
	case facts.OK:
		e["status_id"], e["status"] = success, "Success"
	case facts.Waiting:
		e["status_id"], e["status"] = other, f.Status
	case facts.Denied:
		e["status_id"], e["status"] = failure, "Failure"
		because(e, f)
	default:
		e["status_id"], e["status"], e["status_code"] = failure, "Failure", cmp.Or(f.Status, "unknown")
	}
	return e
}

func (o *ocsf) answer(r audit.Record, f fields) object {
	if slices.Contains(attacks, f.Refusal) {
		e := o.event(r, f, detectionFinding, 1, "Create", "refusal")
		e["severity_id"], e["status_id"] = medium, 1
		e["finding_info"] = object{"uid": r.ID, "title": f.Refusal, "desc": f.Reason}
		return e
	}
	f.Principal = cmp.Or(f.By, "waldo") // who answered, not who asked
	e := o.called(r, f, apiActivity, other, r.Kind, "by")
	switch {
	case f.Refusal != "":
		action(e, denied, "Denied")
		e["status_id"], e["status"], e["status_code"], e["status_detail"] = failure, "Failure", f.Refusal, f.Reason
	case f.Yes != nil && *f.Yes:
		action(e, allowed, "Allowed")
	default:
		action(e, denied, "Denied")
	}
	return e
}

// entity is a change of who may answer, of what is trusted, or of what an operator let in.
func (o *ocsf) entity(r audit.Record, f fields) (e object) {
	switch {
	case r.Kind == audit.KindChange:
		e = o.event(r, f, entityManagement, other, f.Action, "action", "object", "principal")
		e["entity"] = object{"name": cmp.Or(f.Object, "unknown")}
	case r.Kind == audit.KindTrust:
		id, name := 8, "Enable"
		if f.Digest == "" {
			id, name = 9, "Disable"
		}
		e = o.event(r, f, entityManagement, id, name, "file", "principal")
		e["entity"] = object{"type_id": 5, "type": "Policy", "name": cmp.Or(f.File, "unknown")}
	default:
		id, name := 6, "Enroll"
		if f.Action == "revoke" {
			id, name = 7, "Unenroll"
		}
		e = o.event(r, f, entityManagement, id, name, "approver", "principal")
		who := cmp.Or(f.Approver, "unknown")
		e["entity"] = object{"type_id": 2, "type": "User", "name": who, "user": object{"name": who}}
		if f.Failed != "" {
			e["status_id"], e["status"], e["status_detail"] = failure, "Failure", f.Failed
		}
	}
	e["actor"] = object{"user": object{"uid": cmp.Or(f.Principal, "unknown")}}
	return e
}

// methods are those of HTTP Activity, in the order of its activities from 1.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "PATCH"}

// attempts writes an event for each host that a call or a server's sandbox tried to reach.
func (o *ocsf) attempts(r audit.Record, f fields) error {
	for i, a := range f.Attempts {
		class, activity, name := networkActivity, 1, "Open"
		switch {
		case a.Method != "":
			class, activity, name = httpActivity, cmp.Or(slices.Index(methods, a.Method)+1, other), a.Method
		case !a.Allowed:
			activity, name = 5, "Refuse"
		case a.Why != "":
			activity, name = 4, "Fail"
		}
		e := o.event(audit.Record{Seq: r.Seq, ID: fmt.Sprintf("%s/%d", r.ID, i+1), At: r.At, Kind: r.Kind, Hash: r.Hash}, f,
			class, activity, name)
		if class == httpActivity {
			request := object{}
			if e["http_request"] = request; activity != other {
				request["http_method"] = a.Method
			}
			if a.Why != "" {
				e["status_id"], e["status"] = failure, "Failure"
			}
		}
		if a.Allowed {
			action(e, allowed, "Allowed")
		} else {
			e["severity_id"] = low
			action(e, denied, "Denied")
		}
		if a.Why != "" {
			e["status_code"] = a.Why
		}
		to := object{"hostname": a.Host}
		if ip, err := netip.ParseAddr(a.Host); err == nil {
			to = object{"ip": ip.String()}
		}
		if a.Port != 0 {
			to["port"] = a.Port
		}
		e["dst_endpoint"], e["src_endpoint"] = to, object{"svc_name": cmp.Or(f.Server, f.Capability, "unknown")}
		e["connection_info"] = object{"direction_id": 2, "direction": "Outbound"}
		e["traffic"] = object{"bytes_out": a.Sent, "bytes_in": a.Received}
		e["count"] = max(a.Times, 1)
		if f.Principal != "" {
			profile(e, "host")
			e["actor"] = object{"user": object{"uid": f.Principal}}
		}
		if err := line(o.w, e); err != nil {
			return err
		}
	}
	return nil
}

// end writes a finding for each of waldo log verify.
func (o *ocsf) end() error {
	report, err := o.find()
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		severity := informational
		if f.Problem {
			severity = high
		} else if f.Unchecked {
			severity = low
		}
		uid := fmt.Sprintf("%s/%s/%d/%d", f.Code, f.Segment, f.Line, f.Seq)
		e := o.made(o.now(), detectionFinding, 1, "Create", severity, object{"uid": uid, "event_code": "verify"})
		e["status_id"] = 1
		e["finding_info"] = object{"uid": uid, "title": f.Code, "desc": f.Text}
		e["unmapped"] = f
		if err := line(o.w, e); err != nil {
			return err
		}
	}
	return nil
}
