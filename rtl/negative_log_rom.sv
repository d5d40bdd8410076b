// Written by scripts/rtl_tables.py. Do not edit.
// Factor near 1 / x for x in [index / 128, (index + 1) / 128), in 256ths, and logarithms of the factors and of
// 1 - j 2^-s; 128 bits of fraction.
module negative_log_rom (
  input  logic [7:0]        index_i,
  output logic [8:0]        factor_o,
  output logic [135:0]      log_o,
  input  logic [6:0]        j11_i,
  output logic [135:0]      log11_o,
  input  logic [6:0]        j16_i,
  output logic [135:0]      log16_o,
  input  logic [6:0]        j21_i,
  output logic [135:0]      log21_o
);
  always_comb begin
    case (index_i)
      8'd90: {factor_o, log_o} = {9'd362, 136'h58b20bcae71e54bdbd7c8a980728b9c9};
      8'd91: {factor_o, log_o} = {9'd358, 136'h55d9dc5d1569b1526adb283660bd00f9};
      8'd92: {factor_o, log_o} = {9'd354, 136'h52f97e55dde2836d326527dbf6191eb9};
      8'd93: {factor_o, log_o} = {9'd350, 136'h5010c21a1a9f8ef43049f7d319298564};
      8'd94: {factor_o, log_o} = {9'd347, 136'h4ddc998aff616bc953ac4fdd0432bc87};
      8'd95: {factor_o, log_o} = {9'd343, 136'h4ae4c0eae274927694a027ad52bbeb59};
      8'd96: {factor_o, log_o} = {9'd340, 136'h48a507ef3de596890a14f69d750cbd2f};
      8'd97: {factor_o, log_o} = {9'd336, 136'h459d72aeae98380e731f55c41b8b823f};
      8'd98: {factor_o, log_o} = {9'd333, 136'h4351ad5e6add2c81f640e1e5ec92e668};
      8'd99: {factor_o, log_o} = {9'd329, 136'h4039b116b540731a354b80480a98b038};
      8'd100: {factor_o, log_o} = {9'd326, 136'h3de15b97b8b26ca431bca86e106429f6};
      8'd101: {factor_o, log_o} = {9'd323, 136'h3b83794157d8fac1a628ccc5b7e0ee96};
      8'd102: {factor_o, log_o} = {9'd320, 136'h391fef8f353443584bb03de5ff734496};
      8'd103: {factor_o, log_o} = {9'd317, 136'h36b6a33d1f6b48dd13fee0cf0d027b9e};
      8'd104: {factor_o, log_o} = {9'd314, 136'h3447783fc56ac6326e2360f533184fc8};
      8'd105: {factor_o, log_o} = {9'd311, 136'h31d251bd10da8154b13d72d4c4807034};
      8'd106: {factor_o, log_o} = {9'd308, 136'h2f57120421b21237c6d65ad40c100c90};
      8'd107: {factor_o, log_o} = {9'd305, 136'h2cd59a84e55aa1bdbfc6c7855d367f55};
      8'd108: {factor_o, log_o} = {9'd302, 136'h2a4dcbc743686f45c803adc796334db8};
      8'd109: {factor_o, log_o} = {9'd299, 136'h27bf8561d98c5395315c609fbfa24bf1};
      8'd110: {factor_o, log_o} = {9'd297, 136'h2607ae31c8ffa5fd28c704d3edc0b50c};
      8'd111: {factor_o, log_o} = {9'd294, 136'h236e55aa5ecf40520c08d1cb35ce7e78};
      8'd112: {factor_o, log_o} = {9'd291, 136'h20ce2a2594b2dc543191fae192630b38};
      8'd113: {factor_o, log_o} = {9'd289, 136'h1f0a30c01162a6617cc9716eeb32f132};
      8'd114: {factor_o, log_o} = {9'd286, 136'h1c5e548f5bc74315d617ef8161b1769e};
      8'd115: {factor_o, log_o} = {9'd284, 136'h1a926d3a4ad563650bd22a9c3aa4c79b};
      8'd116: {factor_o, log_o} = {9'd281, 136'h17da766d7b12cc844480c89afb3da116};
      8'd117: {factor_o, log_o} = {9'd279, 136'h160658a93750c3b1dee9c4f79259c66d};
      8'd118: {factor_o, log_o} = {9'd277, 136'h142edcbea646f03bba9f26b32d925d19};
      8'd119: {factor_o, log_o} = {9'd274, 136'h116536eea37ae0e8625c173dd325e46e};
      8'd120: {factor_o, log_o} = {9'd272, 136'hf85186008b15330be64b8b775997899};
      8'd121: {factor_o, log_o} = {9'd270, 136'hda16eb88cb8df61468a63ecfb66e94b};
      8'd122: {factor_o, log_o} = {9'd267, 136'hac52dd7e4726a463547a963a91bb301};
      8'd123: {factor_o, log_o} = {9'd265, 136'h8d86cc491ecbfe1651776453b7e8255};
      8'd124: {factor_o, log_o} = {9'd263, 136'h6e7f009ebe465fef5196dd623798680};
      8'd125: {factor_o, log_o} = {9'd261, 136'h4f3a910d1a95d3bcd295bf531790cc7};
      8'd126: {factor_o, log_o} = {9'd259, 136'h2fb88ebf0214edba4a25e0b0837cd43};
      8'd127: {factor_o, log_o} = {9'd256, 136'h0};
      8'd128: {factor_o, log_o} = {9'd256, 136'h0};
      8'd129: {factor_o, log_o} = {9'd253, 136'hfffcfb76eb8eebaabbed3a7b203d97ff53};
      8'd130: {factor_o, log_o} = {9'd251, 136'hfffaf355b699fccfd8cdaf390041925a8d};
      8'd131: {factor_o, log_o} = {9'd249, 136'hfff8e70b44fad5439ce030a686bd8671e5};
      8'd132: {factor_o, log_o} = {9'd247, 136'hfff6d686683973e0b28fef24c2b22bdc43};
      8'd133: {factor_o, log_o} = {9'd245, 136'hfff4c1b58695a253df7d8335f433f93d07};
      8'd134: {factor_o, log_o} = {9'd244, 136'hfff3b5aaf5b0265e657416899f5dc33abf};
      8'd135: {factor_o, log_o} = {9'd242, 136'hfff19a461911269a3c91f60a01dfa72a00};
      8'd136: {factor_o, log_o} = {9'd240, 136'hffef7a674a61c5f9775c02640afcc8d3ed};
      8'd137: {factor_o, log_o} = {9'd238, 136'hffed55fb5bb8e85b74574e34be8fdc74d1};
      8'd138: {factor_o, log_o} = {9'd237, 136'hffec420a582e119bd0ad125894974126bf};
      8'd139: {factor_o, log_o} = {9'd235, 136'hffea16a5b2686e34831e2e8e8eebd601e6};
      8'd140: {factor_o, log_o} = {9'd233, 136'hffe7e681d0bf1c0fe460d2004112bd7066};
      8'd141: {factor_o, log_o} = {9'd232, 136'hffe6cca1a2a6b67751e2a15c1332daf769};
      8'd142: {factor_o, log_o} = {9'd230, 136'hffe495377252a4e4200afdda394b3e3391};
      8'd143: {factor_o, log_o} = {9'd228, 136'hffe258d89c7bb95daff8163a333f9d0554};
      8'd144: {factor_o, log_o} = {9'd227, 136'hffe138c67cf5eee03457f322f01a7e1198};
      8'd145: {factor_o, log_o} = {9'd225, 136'hffdef4ce94c38bf2eeb804c815f991a7da};
      8'd146: {factor_o, log_o} = {9'd224, 136'hffddd0e2fbb037084398e97c071a42fc39};
      8'd147: {factor_o, log_o} = {9'd222, 136'hffdb851dab6c7bfcb71c0b0828eb4a6061};
      8'd148: {factor_o, log_o} = {9'd221, 136'hffda5d3de6f2fd8c52668fc96be57ddedf};
      8'd149: {factor_o, log_o} = {9'd219, 136'hffd80974b4cdae68ec3f351aa682b2aba0};
      8'd150: {factor_o, log_o} = {9'd218, 136'hffd6dd84f998953e43558124c3c4d2fb92};
      8'd151: {factor_o, log_o} = {9'd216, 136'hffd4817f2957849c08fada2606fbf3a4b5};
      8'd152: {factor_o, log_o} = {9'd215, 136'hffd3516282e7d98c1d34f0f4621bed4162};
      8'd153: {factor_o, log_o} = {9'd213, 136'hffd0ece4f5776719841c2450c137fa56f2};
      8'd154: {factor_o, log_o} = {9'd212, 136'hffcfb87d355cb87c891967385f3c0b3dbf};
      8'd155: {factor_o, log_o} = {9'd211, 136'hffce82a0298e02e7aa955d259a16ff5034};
      8'd156: {factor_o, log_o} = {9'd209, 136'hffcc1277f1eed337d94bcd3f4330218fa5};
      8'd157: {factor_o, log_o} = {9'd208, 136'hffcad82586ea4c3921a82b10b46fe46646};
      8'd158: {factor_o, log_o} = {9'd207, 136'hffc99c4f51486386b1a9d59c354a690459};
      8'd159: {factor_o, log_o} = {9'd205, 136'hffc72008721fe11ec72c5962bd2525e1f9};
      8'd160: {factor_o, log_o} = {9'd204, 136'hffc5df901b3543094fceb6dedc72ef07f0};
      8'd161: {factor_o, log_o} = {9'd203, 136'hffc49d849e56ed7f957b8ad81a4d1df3a1};
      8'd162: {factor_o, log_o} = {9'd202, 136'hffc359e20031dfdbdbb13f7c179f7cdadb};
      8'd163: {factor_o, log_o} = {9'd200, 136'hffc0cdc72698990d04cd7cc833faf3927c};
      8'd164: {factor_o, log_o} = {9'd199, 136'hffbf8546a764e5bc2305217a5265c31506};
      8'd165: {factor_o, log_o} = {9'd198, 136'hffbe3b1e7eca9e76324e912b16ec782f06};
      8'd166: {factor_o, log_o} = {9'd197, 136'hffbcef4a627a7473ba74e18a8bb846f871};
      8'd167: {factor_o, log_o} = {9'd196, 136'hffbba1c5f7606e108731d2f80e3485f871};
      8'd168: {factor_o, log_o} = {9'd194, 136'hffb9019a729651ac89575c2124911a8532};
      8'd169: {factor_o, log_o} = {9'd193, 136'hffb7aeea4bc51caf0428b728a2cfb1bbc4};
      8'd170: {factor_o, log_o} = {9'd192, 136'hffb65a77bb2c91b61f10522624fd558f57};
      8'd171: {factor_o, log_o} = {9'd191, 136'hffb5043e0c8db2b182dad7fd86087ce677};
      8'd172: {factor_o, log_o} = {9'd190, 136'hffb3ac3878b28c713d69909e5c3dc7c3e3};
      8'd173: {factor_o, log_o} = {9'd189, 136'hffb252622507bba44c93c3a20e1636a0ed};
      8'd174: {factor_o, log_o} = {9'd188, 136'hffb0f6b6233339f12ad27e50a8ec62bd51};
      8'd175: {factor_o, log_o} = {9'd187, 136'hffaf992f70a85ce379226de3ec63739241};
      8'd176: {factor_o, log_o} = {9'd186, 136'hffae39c8f638ef93e704b3eb3a91114067};
      8'd177: {factor_o, log_o} = {9'd185, 136'hffacd87d87a34f10448d856c51e9751ef1};
      8'd178: {factor_o, log_o} = {9'd184, 136'hffab7547e31d70a0c7bf4d9c534bcaeefc};
      8'd179: {factor_o, log_o} = {9'd183, 136'hffaa1022b0dcb814848468afc45b18ca16};
      8'd180: {factor_o, log_o} = {9'd182, 136'hffa8a908829a83416541148cbb8a27627f};
      default: {factor_o, log_o} = {9'd181, 136'hffa73ff3d3154edb11f398d7000335c319};
    endcase
  end
  always_comb begin
    case (j11_i)
      7'h5e: log11_o = 136'h43711462bf321e863fe760201884bde;
      7'h5f: log11_o = 136'h417951e09af2421de0a1e081b61de3e;
      7'h60: log11_o = 136'h3f815161f807c79f3db4e9a6f57aadc;
      7'h61: log11_o = 136'h3d8912d7936ae40c1b080db0803b145;
      7'h62: log11_o = 136'h3b9096322470295078e96cc13ef95d4;
      7'h63: log11_o = 136'h3997db625cc5beb0edb160cb8e7c74c;
      7'h64: log11_o = 136'h379ee258e87097825ef65dc2d996bf9;
      7'h65: log11_o = 136'h35a5ab066dc9a829d5b4895bb24750a;
      7'h66: log11_o = 136'h33ac355b8d7b196327b4256d35cb358;
      7'h67: log11_o = 136'h31b28148e27d79cd2f606af9ebc6922;
      7'h68: log11_o = 136'h2fb88ebf0214edba4a25e0b0837cd43;
      7'h69: log11_o = 136'h2dbe5dae7bce5d43d4538d2071a718f;
      7'h6a: log11_o = 136'h2bc3ee07d97ca09f585da1b49dc48ef;
      7'h6b: log11_o = 136'h29c93fbb9f35aab426425e8ea6201f4;
      7'h6c: log11_o = 136'h27ce52ba4b4fb1f006b2f75de2fcda8;
      7'h6d: log11_o = 136'h25d326f4565e5759bc822d0ad382a0c;
      7'h6e: log11_o = 136'h23d7bc5a332fcbe005b91e4d137f0c7;
      7'h6f: log11_o = 136'h21dc12dc4ec9f3e3cc9080c0e86d981;
      7'h70: log11_o = 136'h1fe02a6b106788fc37690391dc282d3;
      7'h71: log11_o = 136'h1de402f6d97539f345b90b102cc804b;
      7'h72: log11_o = 136'h1be79c70058ec8f9a6c04043f52763c;
      7'h73: log11_o = 136'h19eaf6c6ea7c281075aa97862867bbb;
      7'h74: log11_o = 136'h17ee11ebd82e93a785a4740e89c01eb;
      7'h75: log11_o = 136'h15f0edcf18bdab6ee7386af6d7fbf03;
      7'h76: log11_o = 136'h13f38a60f064895a4f24dd250117ab0;
      7'h77: log11_o = 136'h11f5e7919d7ed6d505ac2b95540a298;
      7'h78: log11_o = 136'hff805515885e0250435ab4da6a5bb5;
      7'h79: log11_o = 136'hdf9e390540da5fbe5e7b48cfeeb85b;
      7'h7a: log11_o = 136'hbfb823ebcc1ed344eb432409cffdae;
      7'h7b: log11_o = 136'h9fce14cb9634cba6b20f215bd3b58c;
      7'h7c: log11_o = 136'h7fe00aa6ac4399e29e3a153e3b1ab2;
      7'h7d: log11_o = 136'h5fee047ebc6114dcf36ddb127cb9cc;
      7'h7e: log11_o = 136'h3ff8015515621f7809a0a32499268f;
      7'h7f: log11_o = 136'h1ffe002aa6ab1106678ad8b318cb38;
      7'h01: log11_o = 136'hffffdffdffd55154eee4431f91f79112a6;
      7'h02: log11_o = 136'hffffbff7feaa6a9ddb32a0ca0782de50be;
      7'h03: log11_o = 136'hffff9fedfb7ebb9eae630629e434fbfd61;
      7'h04: log11_o = 136'hffff7fdff55153bb10c7cc70889fa01881;
      7'h05: log11_o = 136'hffff5fcdeb20e1c61e427b22d2191c26f6;
      7'h06: log11_o = 136'hffff3fb7dbebb3d1fcb4ac79f9d809375f;
      7'h07: log11_o = 136'hffff1f9dc6afb6ff54164e71a9a2fcb60e;
      7'h08: log11_o = 136'hfffeff7faa6a774ca81a671cc272624c86;
      7'h09: log11_o = 136'hfffedf5d86191f65934b6ec6c2b222db1d;
      7'h0a: log11_o = 136'hfffebf3758b87871e3883e3fff9db43842;
      7'h0b: log11_o = 136'hfffe9f0d2144e9e497ca7b76e8aca60771;
      7'h0c: log11_o = 136'hfffe7ededeba794abf1f5a3036442f164a;
      7'h0d: log11_o = 136'hfffe5eac9014ca1a38bb724b1edb422f48;
      7'h0e: log11_o = 136'hfffe3e76344f1d8055125885604cebc320;
      7'h0f: log11_o = 136'hfffe1e3bca64523057da9224fef5aa3205;
      7'h10: log11_o = 136'hfffdfdfd514ee431dae6674afa0c4bfe17;
      7'h11: log11_o = 136'hfffdddbac808ecaf11ba02fac4f0606937;
      7'h12: log11_o = 136'hfffdbd742d8c21c2edc73b16004c913837;
      7'h13: log11_o = 136'hfffd9d2980d1d647233745aa9c31aa60a8;
      7'h14: log11_o = 136'hfffd7cdac0d2f9a20e2a8bfb25e1115293;
      7'h15: log11_o = 136'hfffd5c87ec8817947856b69d70e64b0dab;
      7'h16: log11_o = 136'hfffd3c3102e958073eeaf8eaf34bfcc4f5;
      7'h17: log11_o = 136'hfffd1bd602ee7ed8d8a28cc7f7f82fbd38;
      7'h18: log11_o = 136'hfffcfb76eb8eebaabbed3a7b203d97ff53;
      7'h19: log11_o = 136'hfffcdb13bbc199aea515b2ed760575ed6a;
      7'h1a: log11_o = 136'hfffcbaac727d1f73bc4d6d347211bf548a;
      7'h1b: log11_o = 136'hfffc9a410eb7aeb39b85a2babd0ccfb0cc;
      7'h1c: log11_o = 136'hfffc79d18f67141f33fcefb9fd9ef01f71;
      7'h1d: log11_o = 136'hfffc595df380b72b936907ffa0a72603f9;
      7'h1e: log11_o = 136'hfffc38e639f999de88a3da2819f0d8f5e7;
      7'h1f: log11_o = 136'hfffc186a61c6589b27c365978a28337403;
      7'h20: log11_o = 136'hfffbf7ea69db29ee2d83717be918e11196;
      7'h21: log11_o = 136'hfffbd766512bde5a41e83d13b003135beb;
      7'h22: log11_o = 136'hfffbb6de16abe0241a012b4c6d7e52b3bc;
      default: log11_o = '0;
    endcase
  end
  always_comb begin
    case (j16_i)
      7'h5e: log16_o = 136'h21fdbe33283cdbee6b3d1f559cc7dc;
      7'h5f: log16_o = 136'h20fddfaec67a5721b3a4e004fee237;
      7'h60: log16_o = 136'h1ffe002aa6ab1106678ad8b318cb38;
      7'h61: log16_o = 136'h1efe1fa6c6cfcc6b0b68d44b4571e4;
      7'h62: log16_o = 136'h1dfe3e2324e9462122c8c5babbd6b2;
      7'h63: log16_o = 136'h1cfe5b9fbef834fd1853867e2fc854;
      7'h64: log16_o = 136'h1bfe781c92fd49d625df1d867db3af;
      7'h65: log16_o = 136'h1afe93999ef92f863c7c8e7193de56;
      7'h66: log16_o = 136'h19feae16e0ec8ae9ec853114cb4f48;
      7'h67: log16_o = 136'h18fec79456d7fae04da79155e2960e;
      7'h68: log16_o = 136'h17fee011febc184ae6f3d74fcc8cc0;
      7'h69: log16_o = 136'h16fef78fd699760d96e7b7c0851dc2;
      7'h6a: log16_o = 136'h15ff0e0ddc70a10e7b79ecbd1e0287;
      7'h6b: log16_o = 136'h14ff238c0e422035da2536a9355cf2;
      7'h6c: log16_o = 136'h13ff380a6a0e746e07f2e56f07f957;
      7'h6d: log16_o = 136'h12ff4b88edd618a35184e9f550f374;
      7'h6e: log16_o = 136'h11ff5e07979981c3e31f6fd028651e;
      7'h6f: log16_o = 136'h10ff6f8665591ebfb0b1ff2a12b1bf;
      7'h70: log16_o = 136'hfff8005551558885de026e271ee05;
      7'h71: log16_o = 136'heff8f8464ce92112609aede8acfae;
      7'h72: log16_o = 136'hdff9e039285284ec452528a4e7d7b;
      7'h73: log16_o = 136'hcffab82dc3972375ba903861a83e6;
      7'h74: log16_o = 136'hbffb8023febc0c25eceb47ea01f6c;
      7'h75: log16_o = 136'haffc381bb9c5ee8785cac2c23f9ad;
      7'h76: log16_o = 136'h9ffce014d4b91a372ca60764762e1;
      7'h77: log16_o = 136'h8ffd780f2f997ee2072d9b98bfd9a;
      7'h78: log16_o = 136'h7ffe000aaa6aac443999e2bc2bf0f;
      7'h79: log16_o = 136'h6ffe7807252fd22766f255c97127d;
      7'h7a: log16_o = 136'h5ffee0047febc061314d3cf66da92;
      7'h7b: log16_o = 136'h4fff38029aa0e6d1ba07eab97f823;
      7'h7c: log16_o = 136'h3fff80015551556221f77809be9c1;
      7'h7d: log16_o = 136'h2fffb8008ffebc03099201ad2041c;
      7'h7e: log16_o = 136'h1fffe0002aaa6aab111066678af6b;
      7'h7f: log16_o = 136'hffff80005555155588885dde0270;
      7'h01: log16_o = 136'hfffffeffff7fffaaaa6aaa77774ccca83a;
      7'h02: log16_o = 136'hfffffdfffdfffd5551554eeee44431fb00;
      7'h03: log16_o = 136'hfffffcfffb7ff6ffebbfcf65ece52df57b;
      7'h04: log16_o = 136'hfffffbfff7ffeaaa6aa9dddb332a0e80ea;
      7'h05: log16_o = 136'hfffffafff37fd654b912e44b28ff113510;
      7'h06: log16_o = 136'hfffff9ffedffb7febbf9ecae6c3092bd2e;
      7'h07: log16_o = 136'hfffff8ffe77f8da8525d88f7aa4dfd9a7d;
      7'h08: log16_o = 136'hfffff7ffdfff5551553bbb110c7ea7eb9b;
      7'h09: log16_o = 136'hfffff6ffd77f0cf99791dcd92b45cfcc96;
      7'h0a: log16_o = 136'hfffff5ffcdfeb2a0e65c881f8a32e5cf89;
      7'h0b: log16_o = 136'hfffff4ffc37e444708977ea09b7b54fa24;
      7'h0c: log16_o = 136'hfffff3ffb7fdbfebbf3d92014b7af7a091;
      7'h0d: log16_o = 136'hfffff2ffab7d238ec5488bca14186862b6;
      7'h0e: log16_o = 136'hfffff1ff9dfc6d2fcfb11561980a5e7ce2;
      7'h0f: log16_o = 136'hfffff0ff8f7b9ace8d6ea006c5fb448956;
      7'h10: log16_o = 136'hffffefff7ffaaa6aa7774cca838838bc72;
      7'h11: log16_o = 136'hffffeeff6f799a03c0bfd488e018a5916e;
      7'h12: log16_o = 136'hffffedff5df86799763b6fe1cf8ba1c9fc;
      7'h13: log16_o = 136'hffffecff4b77112b5edbbf316cb8468f51;
      7'h14: log16_o = 136'hffffebff37f594b90b90b287c3be2a6f77;
      7'h15: log16_o = 136'hffffeaff2373f042074871a024232fdded;
      7'h16: log16_o = 136'hffffe9ff0df221c5d6ef43d7fabbd5cb0f;
      7'h17: log16_o = 136'hffffe8fef7702743f96f7825335b38d1cf;
      7'h18: log16_o = 136'hffffe7fedfedfebbe7b14d0c2247f367b8;
      7'h19: log16_o = 136'hffffe6fec76ba62d149ad894f5730b6754;
      7'h1a: log16_o = 136'hffffe5feade91b96ed0ff040ad6e1b3975;
      7'h1b: log16_o = 136'hffffe4fe93665cf8d7f210fd9e1de4cdfe;
      7'h1c: log16_o = 136'hffffe3fe77e368523620471b77267c811b;
      7'h1d: log16_o = 136'hffffe2fe5b603ba26277163ed40e39f628;
      7'h1e: log16_o = 136'hffffe1fe3ddcd4e8b1d0615454149cdda6;
      7'h1f: log16_o = 136'hffffe0fe1f5932247303528339ba5387ef;
      7'h20: log16_o = 136'hffffdffdffd55154eee4431f91f79112a6;
      7'h21: log16_o = 136'hffffdefddf5130796844a39be31de0eaf1;
      7'h22: log16_o = 136'hffffddfdbdcccd911bf2e37a6362a54b0d;
      default: log16_o = '0;
    endcase
  end
  always_comb begin
    case (j21_i)
      7'h6e: log21_o = 136'h8fffd7800f2ff997c2e21b72cff4;
      7'h6f: log21_o = 136'h87ffdbe00ccb503c537ff612feb8;
      7'h70: log21_o = 136'h7fffe0000aaaa6aaac44439999e3;
      7'h71: log21_o = 136'h77ffe3e008c9fce8fd28a10c2119;
      7'h72: log21_o = 136'h6fffe780072552fd16276b6f23ae;
      7'h73: log21_o = 136'h67ffeae005b8a8ec673bb3c65db8;
      7'h74: log21_o = 136'h5fffee00047ffebc00613314d33d;
      7'h75: log21_o = 136'h57fff0e00377547091943e5ce984;
      7'h76: log21_o = 136'h4ffff380029aaa0e6ad1baa07e83;
      7'h77: log21_o = 136'h47fff5e001e5ff997c1710e0fe72;
      7'h78: log21_o = 136'h3ffff800015555155562221f7778;
      7'h79: log21_o = 136'h37fff9e000e4aa8526b13b5cab7d;
      7'h7a: log21_o = 136'h2ffffb80008fffebc0030999201a;
      7'h7b: log21_o = 136'h27fffce00053554b91568dd52ca5;
      7'h7c: log21_o = 136'h1ffffe00002aaaa6aaab11110666;
      7'h7d: log21_o = 136'h17fffee00011fffebc00184ccae7;
      7'h7e: log21_o = 136'hfffff800005555515555888885e;
      7'h7f: log21_o = 136'h7ffffe00000aaaaa6aaaac44444;
      7'h01: log21_o = 136'hfffffff7ffffdfffff55555155553bbbbb;
      7'h02: log21_o = 136'hffffffefffff7ffffaaaaa6aaaa777774d;
      7'h03: log21_o = 136'hffffffe7fffedfffedfffebbffe7b3314d;
      7'h04: log21_o = 136'hffffffdffffdffffd555515554eeeee444;
      7'h05: log21_o = 136'hffffffd7fffcdfffacaaa0e6a9722a81fa;
      7'h06: log21_o = 136'hffffffcffffb7fff6fffebbffcf665ece6;
      7'h07: log21_o = 136'hffffffc7fff9dfff1b552fd14ec4a0efc1;
      7'h08: log21_o = 136'hffffffbffff7fffeaaaa6aaa9ddddb3333;
      7'h09: log21_o = 136'hffffffb7fff5dffe19ff997be8ef1431a2;
      7'h0a: log21_o = 136'hffffffaffff37ffd6554b9152e454b2928;
      7'h0b: log21_o = 136'hffffffa7fff0dffc88a9c5e66bc17f0b9b;
      7'h0c: log21_o = 136'hffffff9fffedfffb7ffebbff9eccae6cc3;
      7'h0d: log21_o = 136'hffffff97ffeadffa47539710c44bd76ea7;
      7'h0e: log21_o = 136'hffffff8fffe77ff8daa85269d893f7abfd;
      7'h0f: log21_o = 136'hffffff87ffe3dff735fce8fad75e0c20bb;
      7'h10: log21_o = 136'hffffff7fffdffff555515553bbbb1110c8;
      7'h11: log21_o = 136'hffffff77ffdbdff334a591a4800801ecc7;
      7'h12: log21_o = 136'hffffff6fffd77ff0cff997bd1de1d9350c;
      default: log21_o = '0;
    endcase
  end
endmodule
