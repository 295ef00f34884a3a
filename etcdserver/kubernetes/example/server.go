package main

import (
	"fmt"
	"net"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"github.com/ashlar-dev/storage/etcdserver/kubernetes"
)

// prefix is what the keys of all objects begin with.
const prefix = "/registry/apiextensions.kubernetes.io"

// newServer returns an API server of custom resources, whose objects are kept in the store, and the configuration of a client that
// may do everything with it. Nobody else may do anything.
func newServer(store *kubernetes.Store, listener net.Listener) (*genericserver.GenericAPIServer, *rest.Config, error) {
	config := genericserver.NewRecommendedConfig(apiserver.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.Authentication.Authenticator = union.New() // the client's token is added to what is known here, which is nobody
	config.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)

	serving := genericoptions.NewSecureServingOptions().WithLoopback()
	serving.Listener = listener
	serving.BindPort = listener.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertDirectory = "" // the certificate lives as long as the process
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, nil, err
	}
	if err := serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, nil, err
	}

	// This is all of it: whatever would have gone to etcd goes to the store.
	etcd := genericoptions.NewEtcdOptions(
		storagebackend.NewDefaultConfig(prefix, apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)))
	config.RESTOptionsGetter = store.RESTOptions(etcd.CreateRESTOptionsGetter(
		&genericoptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, nil))
	custom := store.RESTOptions(options.NewCRDRESTOptionsGetter(*etcd, nil, config.StorageObjectCountTracker))

	all := &apiserver.Config{GenericConfig: config, ExtraConfig: apiserver.ExtraConfig{CRDRESTOptionsGetter: custom}}
	complete := all.Complete()
	// Where there are several API servers, the one before them tells clients what all of them serve. Here is no other one.
	complete.GenericConfig.EnableDiscovery = true
	server, err := complete.New(genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, nil, fmt.Errorf("API server: %w", err)
	}
	return server.GenericAPIServer, server.GenericAPIServer.LoopbackClientConfig, nil
}
