package serve

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// sentMessage is a message whose bytes count until the gRPC server frees the buffer that contains them. It is the pool of that buffer.
type sentMessage struct {
	proto.Message
	size int
	free func()
}

// Get returns a new buffer.
func (*sentMessage) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put reports that the buffer is free.
func (m *sentMessage) Put(*[]byte) { m.free() }

// pooledSize is a size above which the gRPC server frees a buffer: it ignores smaller ones.
const pooledSize = 1<<10 + 1

// sentCodec encodes messages for a server with answers.
type sentCodec struct{ encoding.CodecV2 }

func newSentCodec() encoding.CodecV2 { return sentCodec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal encodes a message.
func (c sentCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*sentMessage)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	text, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, max(m.size, pooledSize)), m.Message)
	if err != nil {
		m.free()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&text, m)}, nil
}
