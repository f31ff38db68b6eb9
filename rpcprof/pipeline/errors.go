package pipeline

import (
	"context"
	"errors"
	"fmt"
)

// Errors of this package; match with errors.Is.
var (
	// ErrClosed: the connection is closed, by Close or by a failure. With a
	// failure the error also wraps its cause.
	ErrClosed = errors.New("pipeline: connection closed")
	// ErrFrameTooLarge: a frame is longer than the limit. A call that is too large
	// to send fails alone; one that was received ends the connection.
	ErrFrameTooLarge = errors.New("pipeline: frame too large")
	// ErrMalformed: the peer sent what is not a frame of the protocol.
	ErrMalformed = errors.New("pipeline: malformed frame")
	// ErrServerClosed is what Serve returns after Close.
	ErrServerClosed = errors.New("pipeline: server closed")
)

// Codes of a RemoteError. A handler that returns a *RemoteError chooses its own;
// those from 64 are free for services.
const (
	CodeUnknownMethod uint8 = 1 // the server has no such method
	CodeHandler       uint8 = 2 // the handler returned an error
	CodePanic         uint8 = 3 // the handler panicked
	CodeExpired       uint8 = 4 // the deadline passed, perhaps before the handler ran
	CodeTooLarge      uint8 = 5 // the reply is over the server's MaxFrame
	CodeCancelled     uint8 = 6 // the call was cancelled at the server
)

// RemoteError is the handler's error as told by the server. The call reached the
// server and the connection is sound.
type RemoteError struct {
	Code    uint8
	Message string // at most 1,024 bytes
}

// Error gives the message and the code.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("pipeline: remote error %d: %s", e.Code, e.Message)
}

// Is makes CodeExpired match context.DeadlineExceeded: which of the two sides
// noticed first is chance.
func (e *RemoteError) Is(target error) bool {
	return e.Code == CodeExpired && target == context.DeadlineExceeded
}

// maxMessage bounds an error's message, so that an error always fits in a frame.
const maxMessage = 1024

func clip(s string) string {
	if len(s) > maxMessage {
		return s[:maxMessage]
	}
	return s
}
