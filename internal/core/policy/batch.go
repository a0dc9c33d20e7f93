package policy

import (
	"strconv"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// batch decides a call of request_approval. It asks, by the contract of the capability that is to be called, if that
// contract asks for approval and allows so many calls at once. Otherwise it denies.
func (p *Policy) batch(c call.Call, open bool) Decision {
	if open {
		if !p.ceilings() {
			return p.deny(c, call.Reason{Code: "ceiling.absent", Text: "no contract allows to ask for several calls at once"})
		}
		return Decision{Effect: Ask, Call: c, Danger: 3, Policy: p.digest}
	}
	b, err := call.ReadBatch(c.Args)
	if err != nil {
		return p.deny(c, call.Reason{Code: "args.invalid", Text: err.Error()})
	}
	if b.Capability == contract.RequestApproval {
		return p.deny(c, call.Reason{Code: "args.invalid", Text: "an approval of approvals cannot be asked for"})
	}
	one := c
	one.Capability, one.Args = b.Capability, call.Args{}
	d := p.decide(one, true)
	d.Call = c
	most := d.Contract.Approval.Ceiling
	deny := func(code, text string) Decision {
		why := reasonAt(code, text, d.Contract.Approval.At)
		return Decision{Effect: Deny, Reasons: []call.Reason{why}, Call: c, Contract: d.Contract, Danger: 3, Policy: p.digest}
	}
	switch {
	case d.Effect == Deny:
		return d
	case d.Contract.Approval.When == contract.Never:
		return deny("ceiling.needless", "the contract asks for no approval: make the calls")
	case most == 0:
		return deny("ceiling.absent", "the contract of "+string(b.Capability)+" allows one approval for one call only")
	case b.Count > most:
		return deny("ceiling.exceeded", "the contract of "+string(b.Capability)+" allows to ask for "+
			strconv.Itoa(most)+" calls at once")
	}
	d.Effect, d.Contract.Transport = Ask, contract.Batch
	why := reasonAt("ceiling.asked", "one question for up to "+strconv.Itoa(b.Count)+" calls of "+string(b.Capability), d.Contract.Approval.At)
	d.Reasons = append([]call.Reason{why}, d.Reasons...)
	return d
}

// ceilings reports whether some contract allows to ask for several calls at once.
func (p *Policy) ceilings() bool {
	for _, c := range p.cfg.Contracts {
		if c.Approval.Ceiling > 0 && !c.Denied {
			return true
		}
	}
	return false
}
