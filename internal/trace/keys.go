package trace

// openKeys lists the keys, in lower case, with values that traces may show: the keys of the
// specification, of its conventions and of Tenon's plugins. No plugin of Tenon has a key for a
// secret.
const openKeys = "" +
	" address addresses addsourcehints advmss aliases allmulti args backend bandwidth" +
	" bcqueuelen bridge capabilities cgrouppath cni cniversion cniversions conditionsv4" +
	" conditionsv6 containerid containerport dad daemonsocketpath datadir default" +
	" delegateprefix device deviceid dhcp6 dir disablecheck disablecontainerinterface" +
	" disablegc dns domain dpdkmode dropinvalid dst egressburst egressrate enabledad" +
	" excludecidrs externalsetmarkchain firewalldzone forceaddress fromarg gateway gateways" +
	" group gw hairpinmode hostip hostport hwaddr id ifname infinibandguid ingressburst" +
	" ingresspolicy ingressrate interface interfaces ip ip4 ip6 ipam ipmasq ipmasqbackend" +
	" ipranges ips iptablesadminchainname isdefaultgateway isgateway kernelpath" +
	" linkincontainer mac macspoofchk markmasqbit masqall masquerade master maxid minid mode" +
	" mtu multiplegateways multiqueue name nameservers nerdctlid option options owner" +
	" pcibusid pciid plugins pool pools portisolation portmappings preservedefaultvlan" +
	" prevresult priority promisc promiscmode protocol provide range rangeend ranges" +
	" rangestart request resolvconf routes runtimeconfig samesubnet sandbox scope search" +
	" seconddefaultroute selinuxcontext shapedsubnets skipdefault snat socket socketpath" +
	" statuswhenfull sticky subnet sysctl table tosource txqlen type unshapedsubnets" +
	" useinterfacenetwork v4 v6 value version vlan vlanid vlantrunk vrfname" +
	" cni.dev/valid-attachments cni.dev/attachments "
