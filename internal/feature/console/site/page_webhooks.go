package site

import (
	"net/http"
	"time"
)

// Webhook is one sender of waldo.yaml, or one receiver of outgoing webhooks, with the counts of the log.
type Webhook struct {
	Name      string   `json:"name"`             // empty: requests to names that waldo.yaml does not have
	Out       bool     `json:"out"`              // a receiver
	Scheme    string   `json:"scheme,omitempty"` // empty: waldo.yaml does not name it
	Target    string   `json:"target,omitempty"` // agent, or the tool that is called
	Accepted  int      `json:"accepted"`         // or sent for the first time
	Delivered int      `json:"delivered"`
	Retries   int      `json:"retries"`
	Dead      int      `json:"dead"`
	Refused   []Refuse `json:"refused"` // by reason, the most first
	Last      string   `json:"last,omitempty"`
	LastDone  string   `json:"last_delivered,omitempty"`
	LastFault string   `json:"last_fault,omitempty"`
	Why       string   `json:"why,omitempty"` // the reason of the last fault
}

// Refuse counts the refused requests of one reason.
type Refuse struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Delivery is one webhook that is not done. The console does not show its body.
type Delivery struct {
	ID     string    `json:"id"`
	Hook   string    `json:"hook"` // of an outgoing one, the host of its receiver
	Target string    `json:"target"`
	State  string    `json:"state"`
	Tries  int       `json:"tries"`
	At     time.Time `json:"at"`
	Due    time.Time `json:"due"` // of the next try
	Reason string    `json:"reason,omitempty"`
	Call   string    `json:"call_id,omitempty"`
	Event  string    `json:"event,omitempty"` // the sender's name for it
	Type   string    `json:"type,omitempty"`
	Bytes  int       `json:"bytes"`
}

// apiDeliveries lists webhooks that are not done.
func (s *Server) apiDeliveries(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Deliveries(q.Context(), q.URL.Query().Get("state"), p)
	return reply(q, l, err)
}

// deliver retries or drops a webhook.
func (s *Server) deliver(act string) func(*request) error {
	return func(q *request) error {
		id := q.PathValue("id")
		return s.order(q, "webhook."+act, id, "/webhooks", map[string]string{"id": id, "act": act},
			func() error { return s.o.Backend.DeliveryAct(q.Context(), q.who, id, act) })
	}
}

// pageWebhooks shows senders, receivers, and webhooks that are not done. An operator can retry and drop dead ones.
func (s *Server) pageWebhooks(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	all, err := s.o.Backend.Webhooks(q.Context())
	if err != nil {
		return err
	}
	dead, err := s.o.Backend.Deliveries(q.Context(), "dead", p)
	if err != nil {
		return err
	}
	waiting, err := s.o.Backend.Deliveries(q.Context(), "waiting", Page{Limit: defaultLimit})
	if err != nil {
		return err
	}
	v := struct {
		In, Out       []Webhook
		Dead, Waiting List[Delivery]
	}{Dead: dead, Waiting: waiting}
	for _, w := range all.Items {
		if w.Out {
			v.Out = append(v.Out, w)
		} else {
			v.In = append(v.In, w)
		}
	}
	return s.show(q, http.StatusOK, "webhooks", "Webhooks", v)
}
