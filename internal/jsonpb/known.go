package jsonpb

// Payloads of these types are known in addition to the project's own messages. Without this list, the packages that a program happens
// to link would decide whether a payload is encoded by its fields or as bytes.
import (
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)
