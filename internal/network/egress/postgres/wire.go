package postgres

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// welcome reports a successful login to the client without asking for a password, and forwards the server's
// parameters.
func welcome(sb *pgproto3.Backend, version uint32, msg []byte, out *pgconn.HijackedConn) error {
	var m pgproto3.StartupMessage
	if err := m.Decode(msg); err != nil {
		return err
	}
	var unknown []string
	for k := range m.Parameters {
		if extension(k) {
			unknown = append(unknown, k)
		}
	}
	if version != pgproto3.ProtocolVersion30 || len(unknown) > 0 {
		slices.Sort(unknown)
		sb.Send(&pgproto3.NegotiateProtocolVersion{
			NewestMinorProtocol: pgproto3.ProtocolVersion30, UnrecognizedOptions: unknown,
		})
	}
	sb.Send(&pgproto3.AuthenticationOk{})
	for k, v := range out.ParameterStatuses {
		sb.Send(&pgproto3.ParameterStatus{Name: k, Value: v})
	}
	sb.Send(&pgproto3.BackendKeyData{ProcessID: out.PID, SecretKey: out.SecretKey})
	sb.Send(&pgproto3.ReadyForQuery{TxStatus: out.TxStatus})
	return sb.Flush()
}

// tell sends a client the reason for a refused login.
func tell(sb *pgproto3.Backend, code string, r *Refusal) error {
	sb.Send(&pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: "waldo: " + r.Text,
	})
	return sb.Flush()
}

// cancel forwards a cancellation if it is for a session of this sandbox. PostgreSQL never answers one.
func (b *Broker) cancel(ctx context.Context, msg []byte) error {
	if len(msg) != 12 {
		return &Refusal{"protocol", "the cancellation is malformed"}
	}
	k := key{binary.BigEndian.Uint32(msg[4:]), binary.BigEndian.Uint32(msg[8:])}
	b.mu.Lock()
	ours := b.alive[k]
	b.mu.Unlock()
	if !ours {
		return &Refusal{"cancel", "a sandbox cancels what it began itself"}
	}
	out, err := b.Dial(ctx)
	if err != nil {
		return err
	}
	defer out.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = out.SetDeadline(end)
	}
	if out, err = b.shield(ctx, out); err != nil {
		return err
	}
	if _, err := out.Write(binary.BigEndian.AppendUint32(nil, 16)); err != nil {
		return err
	}
	if _, err := out.Write(msg); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, out) // the server closes once it has done it
	return nil
}

// shield asks a server for TLS, where the broker has it.
func (b *Broker) shield(ctx context.Context, out net.Conn) (net.Conn, error) {
	if b.TLS == nil {
		return out, nil
	}
	ask := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), codeTLS)
	if _, err := out.Write(ask); err != nil {
		return nil, err
	}
	var yes [1]byte
	if _, err := io.ReadFull(out, yes[:]); err != nil || yes[0] != 'S' {
		return nil, errors.Join(errors.New("the server has no TLS"), err)
	}
	t := tls.Client(out, b.TLS)
	return t, t.HandshakeContext(ctx)
}
