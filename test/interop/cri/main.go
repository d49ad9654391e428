// Command cri makes one call of a Kubernetes Container Runtime Interface, version v1:
//
//	cri SOCKET METHOD <REQUEST >RESPONSE
//
// METHOD is one of RuntimeService, such as RunPodSandbox. Request and response are JSON. It is a
// module of its own, so that Tenon does not depend on gRPC.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // its messages register themselves
)

const timeout = time.Minute

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET METHOD <REQUEST >RESPONSE")
		os.Exit(2)
	}
	if err := call(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(socket, method string) error {
	request, err := message(method + "Request")
	if err != nil {
		return err
	}
	response, err := message(method + "Response")
	if err != nil {
		return err
	}
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(in, request); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := conn.Invoke(ctx, "/runtime.v1.RuntimeService/"+method, request, response); err != nil {
		return err
	}
	out, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

func message(name string) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("runtime.v1." + name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return kind.New().Interface(), nil
}
